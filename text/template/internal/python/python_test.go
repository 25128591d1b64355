package python

import (
	"testing"
	"time"
)

// TestCase compares with what Python's methods give.
func TestCase(t *testing.T) {
	for _, c := range []struct{ s, upper, lower, title, capitalized, swapped string }{
		{"straße ΑΣ ŉ éÀ", "STRASSE ΑΣ ʼN ÉÀ", "straße ας ŉ éà", "Straße Ας ʼN Éà", "Straße ας ŉ éà", "STRASSE ας ʼN Éà"},
		{"ΣΑΣ.Σ ΑΣ'", "ΣΑΣ.Σ ΑΣ'", "σασ.ς ας'", "Σασ.Σ Ας'", "Σασ.ς ας'", "σασ.ς ας'"},
		{"ﬁn ǆ İx", "FIN Ǆ İX", "ﬁn ǆ i̇x", "Fin ǅ İx", "Fin ǆ i̇x", "FIN Ǆ i̇X"},
		{"they're 3rd", "THEY'RE 3RD", "they're 3rd", "They'Re 3Rd", "They're 3rd", "THEY'RE 3RD"},
		{"", "", "", "", "", ""},
	} {
		for _, r := range [][2]string{
			{Upper(c.s), c.upper}, {Lower(c.s), c.lower}, {Title(c.s), c.title}, {Capitalize(c.s), c.capitalized}, {SwapCase(c.s), c.swapped},
		} {
			if r[0] != r[1] {
				t.Errorf("%q: got %q, want %q", c.s, r[0], r[1])
			}
		}
	}
}

// TestCaseFold compares with what Python's str.casefold gives.
func TestCaseFold(t *testing.T) {
	const s, want = "straße ΑΣς ŉ ÉÀ ẞ ﬁ ıİI ꭰᎠ Ǆ", "strasse ασσ ʼn éà ss fi ıi̇i ᎠᎠ ǆ"
	if got := CaseFold(s); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStrftime compares with what Python's datetime.strftime gives.
func TestStrftime(t *testing.T) {
	for _, c := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(2026, 3, 7, 16, 5, 9, 120034000, time.UTC), "2026-03-07 7 Mar March Sat Saturday 04:05:09 PM 066 26 120034 09 09 10 6 6 %  7 Sat Mar  7 16:05:09 2026"},
		{time.Date(2024, 12, 30, 0, 0, 0, 0, time.UTC), "2024-12-30 30 Dec December Mon Monday 12:00:00 AM 365 24 000000 52 53 01 1 1 % 30 Mon Dec 30 00:00:00 2024"},
		{time.Date(2023, 1, 1, 12, 0, 0, 0, time.UTC), "2023-01-01 1 Jan January Sun Sunday 12:00:00 PM 001 23 000000 01 00 52 0 7 %  1 Sun Jan  1 12:00:00 2023"},
	} {
		got, err := Strftime(c.now, "%Y-%m-%d %-d %b %B %a %A %I:%M:%S %p %j %y %f %U %W %V %w %u %% %e %c")
		if err != nil || got != c.want {
			t.Errorf("got  %s %v\nwant %s", got, err, c.want)
		}
	}
	if _, err := Strftime(time.Time{}, "%Q"); err == nil {
		t.Errorf("%%Q: %v", err)
	}
}
