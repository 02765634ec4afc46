package subpath

import (
	"os"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// walks runs f with openat2(2) and without.
func walks(t *testing.T, f func(t *testing.T, w Walk)) {
	t.Run("openat2", func(t *testing.T) { f(t, Walk{}) })
	t.Run("step by step", func(t *testing.T) { f(t, Walk{NoOpenat2: true}) })
}
