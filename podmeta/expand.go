package podmeta

import (
	"math"
	"strings"
)

// Expand replaces $(NAME) by the value that lookup returns for NAME. References to unknown names,
// and references without an end, are kept; unknown lists the unknown names. $$ becomes $, so that
// $$(NAME) becomes $(NAME).
func Expand(s string, lookup func(string) (string, bool)) (out string, unknown []string) {
	out, unknown, _ = ExpandWithin(s, math.MaxInt, lookup)
	return out, unknown
}

// ExpandWithin is Expand with a limit: if the result would have more than limit bytes,
// ok is false and out is "". It allocates little more than limit bytes, however long the
// values are.
func ExpandWithin(s string, limit int, lookup func(string) (string, bool)) (out string, unknown []string, ok bool) {
	if !strings.ContainsRune(s, '$') {
		if len(s) > limit {
			return "", nil, false
		}
		return s, nil, true
	}
	var b strings.Builder
	closes := true // false once no ) is left, so that it is not searched again
	for i := 0; i < len(s); {
		if b.Len() > limit {
			return "", nil, false
		}
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i += 2
		case '(':
			end := -1
			if closes {
				end = strings.IndexByte(s[i+2:], ')')
				closes = end >= 0
			}
			if end < 0 {
				b.WriteString("$(")
				i += 2
				continue
			}
			name := s[i+2 : i+2+end]
			if v, known := lookup(name); known {
				if len(v) > limit-b.Len() {
					return "", nil, false
				}
				b.WriteString(v)
			} else {
				unknown = append(unknown, name)
				b.WriteString(s[i : i+3+end])
			}
			i += 3 + end
		default:
			b.WriteByte('$')
			b.WriteByte(s[i+1])
			i += 2
		}
	}
	if b.Len() > limit {
		return "", nil, false
	}
	return b.String(), unknown, true
}
