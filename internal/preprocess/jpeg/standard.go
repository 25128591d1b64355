package jpeg

import "encoding/hex"

// standardTables are the codes that the standard gives as examples (annex K.3), for first coefficients and for others, of
// luminance and of chrominance, as in a DHT segment. Frames of video often leave them out.
var standardTables = [2][2]string{
	{
		"00010501010101010100000000000000000102030405060708090a0b",
		"00030101010101010101010000000000000102030405060708090a0b",
	},
	{
		"0002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f0" +
			"2433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a63646566676869" +
			"6a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5" +
			"c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa",
		"00020102040403040705040400010277000102031104052131061241510761711322328108144291a1b1c109233352f0" +
			"156272d10a162434e125f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768" +
			"696a737475767778797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3" +
			"c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa",
	},
}

// addStandardTables sets the tables that a sequential picture did not define before its first scan.
func (d *decoder) addStandardTables() error {
	for class, texts := range standardTables {
		for index, text := range texts {
			if d.huffman[class][index] != nil {
				continue
			}
			data, err := hex.DecodeString(text)
			if err != nil {
				return err
			}
			if d.huffman[class][index], _, err = newTable(data); err != nil {
				return err
			}
		}
	}
	return nil
}
