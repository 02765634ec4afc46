package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestGauge(t *testing.T) {
	dir := t.TempDir()
	write := func(file, content string) {
		t.Helper()
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pressure := func(cpu, io, memory string) {
		for file, total := range map[string]string{"cpu": cpu, "io": io, "memory": memory} {
			write("pressure/"+file, "some avg10=0.00 avg60=0.00 avg300=0.00 total="+total+"\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{machine: kernel.New(kernel.Options{Proc: kernel.Dir(dir)})}
		want := func(busy bool, why string) {
			t.Helper()
			time.Sleep(time.Second)
			if got, said := g.busy(); got != busy || !strings.Contains(said, why) {
				t.Errorf("busy %v, %q; want %v, %q", got, said, busy, why)
			}
		}
		want(true, "not known yet")
		want(true, "cannot be read")
		write("stat", "cpu  100 0 0 900 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
		g.last = reading{}
		want(true, "not known yet")
		write("stat", "cpu  195 0 0 902 3 0 0 0 0 0\n")
		want(true, "95 %")
		write("stat", "cpu  200 0 0 990 3 0 0 0 0 0\n")
		want(false, "")
		pressure("1000000", "0", "0")
		g.last = reading{}
		want(true, "not known yet")
		pressure("1100000", "100000", "199999")
		want(false, "")
		pressure("1100000", "350000", "199999")
		want(true, "stalled for io for 25 %")
		pressure("1100000", "350000", "nothing")
		want(true, "cannot be read") // stat was not read the time before
	})
}
