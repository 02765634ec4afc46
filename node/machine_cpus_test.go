package node

import (
	"errors"
	"runtime"
	"testing"
)

func TestCountCPUs(t *testing.T) {
	for content, want := range map[string]int{
		"0-3\n": 4, "0\n": 1, "0-1,4-7,9\n": 7, "": runtime.NumCPU(), "some\n": runtime.NumCPU(),
	} {
		if got := countCPUs(func() ([]byte, error) { return []byte(content), nil }); got != want {
			t.Errorf("%q: got %d, want %d", content, got, want)
		}
	}
	if got := countCPUs(func() ([]byte, error) { return nil, errors.New("not mounted") }); got != runtime.NumCPU() {
		t.Errorf("without the list: got %d, want %d", got, runtime.NumCPU())
	}
}
