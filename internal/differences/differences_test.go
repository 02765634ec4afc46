package differences_test

import (
	"strings"
	"testing"

	"github.com/nodewright/nodewright/internal/differences"
)

func TestEachDifferenceHasAReason(t *testing.T) {
	_, text, _ := strings.Cut(differences.Text, "\n## ")
	items := 0
	for area := range strings.SplitSeq(text, "\n## ") {
		name, list, _ := strings.Cut(area, "\n\n")
		for item := range strings.SplitSeq(strings.TrimPrefix(list, "- "), "\n- ") {
			items++
			what, why, _ := strings.Cut(strings.TrimSpace(item), "\n  ")
			if !strings.HasSuffix(what, ".") || !strings.HasSuffix(why, ".") || strings.Contains(why, "\n") {
				t.Errorf("%s: %q, reason %q: want a line of sentences each", name, what, why)
			}
		}
	}
	if items < 50 {
		t.Errorf("found %d differences", items)
	}
}
