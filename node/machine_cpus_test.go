package node

import (
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/nodewright/nodewright/internal/kernel"
)

func TestCountCPUs(t *testing.T) {
	for content, want := range map[string]int{
		"0-3\n": 4, "0\n": 1, "0-1,4-7,9\n": 7, "": runtime.NumCPU(), "some\n": runtime.NumCPU(),
	} {
		if got := countCPUs(kernel.At(fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte(content)}})); got != want {
			t.Errorf("%q: got %d, want %d", content, got, want)
		}
	}
	if got := countCPUs(kernel.At(fstest.MapFS{})); got != runtime.NumCPU() {
		t.Errorf("without the list: got %d, want %d", got, runtime.NumCPU())
	}
}
