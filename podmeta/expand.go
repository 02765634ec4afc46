package podmeta

import "strings"

// Expand replaces $(NAME) by what lookup knows of NAME. A reference that it
// does not know stays as it is, $$ stands for $, and so $$(NAME) for $(NAME)
// itself; unclosed references stay as well. The unknown names are returned.
func Expand(s string, lookup func(string) (string, bool)) (out string, unknown []string) {
	if !strings.ContainsRune(s, '$') {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
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
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				b.WriteString("$(")
				i += 2
				continue
			}
			name := s[i+2 : i+2+end]
			if v, ok := lookup(name); ok {
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
	return b.String(), unknown
}
