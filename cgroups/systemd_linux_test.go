package cgroups

import (
	"context"
	"errors"
	"maps"
	"os"
	"testing"
)

func systemdPtr[T any](v T) *T { return &v }

func TestProperties(t *testing.T) {
	r := Resources{
		CPUShares: systemdPtr(uint64(1024)), CPUQuota: systemdPtr(int64(50000)), CPUPeriod: systemdPtr(uint64(100000)), CPUSet: "0-1",
		Memory: systemdPtr(int64(1 << 20)), MemorySwap: systemdPtr(int64(4096)), Pids: systemdPtr(int64(7)),
		Unified: map[string]string{"memory.low": "4096"},
	}
	v2 := properties(V2, r)
	if v2.CpuShares != 0 || v2.CpuWeight != 39 || v2.CpuQuota != 50000 || v2.CpuPeriod != 100000 || v2.CpusetCpus != "0-1" ||
		v2.Memory != 1<<20 || v2.MemorySwap != 1<<20+4096 || *v2.PidsLimit != 7 || !maps.Equal(v2.Unified, r.Unified) ||
		!v2.SkipDevices || !v2.SkipFreezeOnSet {
		t.Errorf("v2: %+v", v2)
	}
	v1 := properties(V1, r)
	if v1.CpuShares != 1024 || v1.CpuWeight != 0 || v1.Unified != nil {
		t.Errorf("v1: %+v; want shares, and nothing of v2", v1)
	}
	if got := properties(V2, Resources{}); got.CpuWeight != 0 || got.Memory != 0 || got.PidsLimit != nil || got.Unified != nil {
		t.Errorf("of nothing: %+v", got)
	}
	r.MemorySwap = systemdPtr(int64(Unlimited))
	if got := properties(V2, r); got.MemorySwap != -1 {
		t.Errorf("unlimited swap is %d, want -1", got.MemorySwap)
	}
}

func TestWithoutSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd")
	}
	u := SystemdUnits{Version: V2}
	for name, err := range map[string]error{
		"Start": u.Start(t.Context(), "a-b.slice", "a.slice"),
		"Set":   u.Set(t.Context(), "a-b.slice", "a.slice", Resources{}),
		"Stop":  u.Stop(t.Context(), "a-b.slice", "a.slice"),
	} {
		if !errors.Is(err, ErrSystemdNotRunning) {
			t.Errorf("%s = %v, want ErrNotRunning", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.Start(ctx, "a.slice", "-.slice"); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context = %v", err)
	}
}
