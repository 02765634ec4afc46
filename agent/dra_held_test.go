package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/dra"
)

// holds is a DRA that has something for one container.
type holds struct{ DRANode }

func (holds) Holdings(_ types.UID, container string) []dra.Holding {
	if container != "c" {
		return nil
	}
	return []dra.Holding{{Namespace: "ns", Claim: "a", Devices: []dra.HeldDevice{
		{Driver: "d.e", Device: dra.Device{Pool: "n", Name: "0", CDI: []string{"v/c=0", "v/c=1"}}},
	}}}
}

func TestDynamicResources(t *testing.T) {
	got := heldClaims{holds{}}.Dynamic(&v1.Pod{}, "c")
	if len(got) != 1 || got[0].GetClaimName() != "a" || got[0].GetClaimNamespace() != "ns" || len(got[0].GetClaimResources()) != 1 {
		t.Fatalf("dynamic resources %v", got)
	}
	r := got[0].GetClaimResources()[0]
	if r.GetDriverName() != "d.e" || r.GetPoolName() != "n" || r.GetDeviceName() != "0" || len(r.GetCdiDevices()) != 2 || r.GetCdiDevices()[1].GetName() != "v/c=1" {
		t.Errorf("resource %v", r)
	}
	if none := (heldClaims{holds{}}).Dynamic(&v1.Pod{}, "other"); len(none) != 0 {
		t.Errorf("another container has %v", none)
	}
}
