package main

import (
	"slices"
	"testing"
)

func TestNumaArgs(t *testing.T) {
	for _, c := range []struct {
		cpus   int
		memory string
		want   []string
	}{
		{1, "3G", nil},
		{2, "3G", []string{
			"-object", "memory-backend-ram,id=ram0,size=1536M", "-numa", "node,nodeid=0,cpus=0-0,memdev=ram0",
			"-object", "memory-backend-ram,id=ram1,size=1536M", "-numa", "node,nodeid=1,cpus=1-1,memdev=ram1",
		}},
		{5, "1026M", []string{
			"-object", "memory-backend-ram,id=ram0,size=513M", "-numa", "node,nodeid=0,cpus=0-1,memdev=ram0",
			"-object", "memory-backend-ram,id=ram1,size=513M", "-numa", "node,nodeid=1,cpus=2-4,memdev=ram1",
		}},
	} {
		s := settings{cpus: c.cpus}
		if err := s.memory.Set(c.memory); err != nil {
			t.Errorf("-memory %s: %v", c.memory, err)
		}
		if got := numaArgs(s); !slices.Equal(got, c.want) {
			t.Errorf("%d CPUs, %s: %q, want %q", c.cpus, c.memory, got, c.want)
		}
	}
	for _, bad := range []string{"", "3", "1025M", "-2G", "0", "3g", "3T", "99999999999G"} {
		if m := memory(0); m.Set(bad) == nil {
			t.Errorf("-memory %q is taken for %s", bad, &m)
		}
	}
}
