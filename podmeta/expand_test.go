package podmeta

import (
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "a", "B": "b", "EMPTY": "", "REF": "$(A)", "a-b.c": "odd"}
	lookup := func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	for _, tc := range []struct {
		in, want string
		unknown  []string
	}{
		{in: "", want: ""},
		{in: "plain", want: "plain"},
		{in: "$(A)", want: "a"},
		{in: "x$(A)y$(B)z", want: "xaybz"},
		{in: "$(A)$(A)", want: "aa"},
		{in: "[$(EMPTY)]", want: "[]"},
		{in: "$(a-b.c)", want: "odd"},
		{in: "$(REF)", want: "$(A)"}, // a value is not expanded again

		{in: "$(NONE)", want: "$(NONE)", unknown: []string{"NONE"}},
		{in: "$(NONE)/$(A)/$(NADA)", want: "$(NONE)/a/$(NADA)", unknown: []string{"NONE", "NADA"}},
		{in: "$()", want: "$()", unknown: []string{""}},
		{in: "$( A )", want: "$( A )", unknown: []string{" A "}},
		{in: "$($(A))", want: "$($(A))", unknown: []string{"$(A"}},

		{in: "$$", want: "$"},
		{in: "$$(A)", want: "$(A)"},
		{in: "$$$(A)", want: "$a"},
		{in: "$$$$(A)", want: "$$(A)"},
		{in: "$$(NONE)", want: "$(NONE)"},
		{in: "cost: 5$", want: "cost: 5$"},
		{in: "$A ${A} $ (A)", want: "$A ${A} $ (A)"},

		{in: "$(A", want: "$(A"},
		{in: "$(", want: "$("},
		{in: "$(A)$(", want: "a$("},
		{in: "$(A $$", want: "$(A $"},
	} {
		got, unknown := Expand(tc.in, lookup)
		if got != tc.want || !slices.Equal(unknown, tc.unknown) {
			t.Errorf("Expand(%q) = %q, unknown %q; want %q, unknown %q", tc.in, got, unknown, tc.want, tc.unknown)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$", "$$", "$(A)", "$$(A)", "$(", "$(A", "$($(A))", "a$(B)c$$(D)", "$()"} {
		f.Add(s)
	}
	none := func(string) (string, bool) { return "", false }
	f.Fuzz(func(t *testing.T, s string) {
		if !strings.Contains(s, "$$") {
			if got, _ := Expand(s, none); got != s {
				t.Errorf("Expand(%q) with nothing known = %q, want it as it was", s, got)
			}
		}
		escaped := strings.ReplaceAll(s, "$", "$$")
		got, unknown := Expand(escaped, func(n string) (string, bool) {
			t.Errorf("Expand(%q) looked up %q, which is escaped", escaped, n)
			return "", false
		})
		if got != s || len(unknown) > 0 {
			t.Errorf("Expand(%q) = %q, unknown %q; want %q", escaped, got, unknown, s)
		}
		// Each reference is looked up once, and every one that is not known
		// is told of.
		var asked []string
		_, unknown = Expand(s, func(n string) (string, bool) { asked = append(asked, n); return "", false })
		if !slices.Equal(asked, unknown) {
			t.Errorf("Expand(%q): looked up %q, unknown %q", s, asked, unknown)
		}
	})
}
