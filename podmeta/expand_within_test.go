package podmeta

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandWithin(t *testing.T) {
	lookup := func(n string) (string, bool) { return "12345", n == "A" }
	for _, tc := range []struct {
		in, want string
		limit    int
		ok       bool
	}{
		{"", "", 0, true},
		{"abc", "abc", 3, true},
		{"abcd", "", 3, false},
		{"$(A)", "12345", 5, true},
		{"$(A)", "", 4, false},
		{"$(A)$(A)", "1234512345", 10, true},
		{"$(A)$(A)", "", 9, false},
		{"$(B)", "$(B)", 4, true},
		{"$(B)", "", 3, false},
		{"$$$$", "$$", 2, true},
		{"$$$$", "", 1, false},
		{"x$(", "x$(", 3, true},
		{"x$(", "", 2, false},
	} {
		if got, _, ok := ExpandWithin(tc.in, tc.limit, lookup); got != tc.want || ok != tc.ok {
			t.Errorf("ExpandWithin(%q, %d) = %q, %t; want %q, %t", tc.in, tc.limit, got, ok, tc.want, tc.ok)
		}
	}
}

// References that double what there is cost no more than the limit.
func TestExpandWithinAllocatesLittle(t *testing.T) {
	const limit = 64 << 10
	long := strings.Repeat("x", limit)
	text := strings.Repeat("$(A)", 100000)
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, _, ok := ExpandWithin(text, limit, func(string) (string, bool) { return long, true }); ok {
				b.Fatal("taken")
			}
		}
	})
	if n := r.AllocedBytesPerOp(); n > 4*limit {
		t.Errorf("%d bytes are allocated for a limit of %d", n, limit)
	}
}

// A reference without an end is looked for once: this takes hours otherwise.
func TestExpandManyUnclosedReferences(t *testing.T) {
	text := strings.Repeat("$(", 4<<20)
	if got, unknown := Expand(text, func(string) (string, bool) { return "", false }); got != text || unknown != nil {
		t.Errorf("%d bytes, %d unknown", len(got), len(unknown))
	}
}

// Whatever the text: within enough it is Expand, and what is refused would have
// been too long.
func FuzzExpandWithin(f *testing.F) {
	for _, s := range []string{"", "$(A)", "$$(A)", "$(", "$(B)$(A", "$", "a$(A)$$b)"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		lookup := func(n string) (string, bool) { return "value$(A)", n == "A" }
		want, unknown := Expand(s, lookup)
		got, names, ok := ExpandWithin(s, limit, lookup)
		if ok != (len(want) <= limit) || ok && (got != want || !slices.Equal(names, unknown)) || !ok && got != "" {
			t.Errorf("%q within %d: %q, %t; want %q", s, limit, got, ok, want)
		}
		if n := len(want) - len(s); n > 9*strings.Count(s, "$(A)") {
			t.Errorf("%q: %d bytes more", s, n)
		}
	})
}
