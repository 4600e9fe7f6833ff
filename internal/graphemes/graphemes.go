// Package graphemes bounds how many characters a text has as people count them, which is
// how social networks count: a flag, a family or a letter with its accents is one.
package graphemes

import "unicode"

const (
	joiner       = '\u200d'
	mostConjunct = 0x11fff // Indic scripts end below it
)

// prepended are the letters that begin a character and are none by themselves.
var prepended = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x0d4e, Hi: 0x0d4e, Stride: 1}},
	R32: []unicode.Range32{
		{Lo: 0x111c2, Hi: 0x111c3, Stride: 1},
		{Lo: 0x113d1, Hi: 0x113d1, Stride: 1},
		{Lo: 0x1193f, Hi: 0x1193f, Stride: 1},
		{Lo: 0x11941, Hi: 0x11941, Stride: 1},
		{Lo: 0x11a3a, Hi: 0x11a3a, Stride: 1},
		{Lo: 0x11a84, Hi: 0x11a89, Stride: 1},
		{Lo: 0x11d46, Hi: 0x11d46, Stride: 1},
		{Lo: 0x11f02, Hi: 0x11f02, Stride: 1},
	},
}

// Least is how many characters text has for certain, by whatever version of Unicode
// (UAX 29): marks, and whatever may be one with what is before it, are not counted. So what
// is over a limit by it is refused by everybody who counts.
func Least(text string) (n int) {
	var before rune
	for _, r := range text {
		switch {
		case unicode.Is(unicode.M, r), unicode.Is(unicode.Cf, r), unicode.Is(prepended, r): // Cf has the joiner, too
		case r >= 0x1f3fb && r <= 0x1f3ff, r == 0xff9e, r == 0xff9f: // skin tones; sound marks
		case before == joiner, before == '\r' && r == '\n':
		case isFlag(r) && isFlag(before):
			r = 0 // the third one begins another flag
		case isJamo(before) && (isJamo(r) || r >= 0xac00 && r <= 0xd7a3), r >= 0x1160 && r <= 0x11ff, r >= 0xd7b0 && r <= 0xd7ff:
		case unicode.Is(unicode.Mn, before) && r > 0x08ff && r <= mostConjunct && before > 0x08ff && before <= mostConjunct: // a consonant behind a virama
		default:
			n++
		}
		before = r
	}
	return n
}

// isFlag reports whether r is one of the letters of which two are a flag.
func isFlag(r rune) bool { return r >= 0x1f1e6 && r <= 0x1f1ff }

// isJamo reports whether r is a Korean letter that begins a syllable.
func isJamo(r rune) bool { return r >= 0x1100 && r <= 0x115f || r >= 0xa960 && r <= 0xa97f }
