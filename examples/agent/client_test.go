package main

import (
	"testing"

	"github.com/nodewright/nodewright/node"
)

func TestUsedRootDir(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	if got := usedRootDir(first, second); got != second {
		t.Errorf("%s; want the last, since no agent has used any", got)
	}
	for _, dir := range []string{second, first} {
		lock, err := node.LockRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		lock.Release()
		if got := usedRootDir(first, second); got != dir {
			t.Errorf("%s; want %s", got, dir)
		}
	}
}
