package tokenizer

// Bytes returns the bytes that a token adds to a text behind other tokens, as [Tokenizer.TokenBytes] does, for a single one; a
// special token is spelt. Where that depends on the tokens beside it, it is what the token alone is decoded to.
func (t *Tokenizer) Bytes(id uint32) []byte {
	token, ok := t.decodable(id, false)
	if !ok {
		return nil
	}
	if _, plain := t.decodable(id, true); !plain || t.separate() != nil {
		return []byte(t.Decode([]uint32{id}, false))
	}
	return t.bytesOf(token, false)
}
