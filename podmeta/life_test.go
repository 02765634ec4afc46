package podmeta_test

import (
	"math"
	"testing"

	"github.com/nodewright/nodewright/podmeta"
)

func TestNumbersOfLivesAreReadBack(t *testing.T) {
	const key = "example.com/life"
	given := map[string]string{"a": "b"}
	for _, n := range []uint32{0, 1, 7, math.MaxUint32} {
		out := podmeta.WithLife(given, key, n)
		if got := podmeta.LifeIn(out, key); got != n || len(given) != 1 || out["a"] != "b" {
			t.Errorf("%d is read as %d from %v", n, got, out)
		}
		if _, has := podmeta.WithLife(out, key, 0)[key]; has {
			t.Error("a life without a number has one")
		}
	}
	for _, bad := range []string{"", "-1", "x", "4294967296"} {
		if got := podmeta.LifeIn(map[string]string{key: bad}, key); got != 0 {
			t.Errorf("%q is read as %d", bad, got)
		}
	}
	if got := podmeta.LifeIn(podmeta.WithLife(nil, key, 3), key); got != 3 {
		t.Errorf("without other annotations it is read as %d", got)
	}
}
