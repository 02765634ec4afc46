package csi

import (
	"context"
	"errors"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/volumemgr"
)

// claimWith is a claim that has a size, and may be on its way to another.
func claimWith(has, allocated string, state v1.ClaimResourceStatus, conditions ...v1.PersistentVolumeClaimConditionType) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	c.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(has)}
	if allocated != "" {
		c.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse(allocated)}
	}
	if state != "" {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: state}
	}
	for _, t := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, v1.PersistentVolumeClaimCondition{Type: t, Status: v1.ConditionTrue})
	}
	return c
}

func sized(size string, modes ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) {
		pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
		if len(modes) > 0 {
			pv.Spec.AccessModes = modes
		}
	}
}

func TestWhichVolumesAreMadeLarger(t *testing.T) {
	const gi = int64(1 << 30)
	spared := func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{expandNotRequired: "true"} }
	for name, c := range map[string]struct {
		spec  *volumemgr.Spec
		claim *v1.PersistentVolumeClaim
		local int64
		size  int64
		run   bool
	}{
		"at its size":        {persistent("h", sized("1Gi")), claimWith("1Gi", "", ""), gi, gi, false},
		"not the node's yet": {persistent("h", sized("2Gi")), claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimControllerResizeInProgress), gi, 2 * gi, false},
		"pending":            {persistent("h", sized("2Gi")), claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), gi, 2 * gi, true},
		"in progress":        {persistent("h", sized("2Gi")), claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), gi, 2 * gi, true},
		"infeasible":         {persistent("h", sized("2Gi")), claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInfeasible), gi, 2 * gi, false},
		"recovering to less": {persistent("h", sized("3Gi")), claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), gi, 2 * gi, true},
		"an old controller":  {persistent("h", sized("2Gi")), claimWith("1Gi", "", "", v1.PersistentVolumeClaimFileSystemResizePending), gi, 2 * gi, true},
		"nobody says":        {persistent("h", sized("2Gi")), claimWith("1Gi", "", ""), gi, 2 * gi, false},
		"another node did":   {persistent("h", sized("2Gi", v1.ReadWriteMany)), claimWith("2Gi", "", ""), gi, 2 * gi, true},
		"here as well":       {persistent("h", sized("2Gi", v1.ReadWriteMany)), claimWith("2Gi", "", ""), 2 * gi, 2 * gi, false},
		"spared":             {persistent("h", sized("2Gi", v1.ReadWriteMany), spared), claimWith("2Gi", "", ""), gi, 2 * gi, false},
		"one node alone":     {persistent("h", sized("2Gi")), claimWith("2Gi", "", ""), gi, 2 * gi, false},
	} {
		if size, run := expansion(c.spec.PersistentVolume, c.claim, c.local); size != c.size || run != c.run {
			t.Errorf("%s: %d, %t; want %d, %t", name, size, run, c.size, c.run)
		}
	}
}

// statuses are the statuses written to a claim.
type statuses struct {
	live   *v1.PersistentVolumeClaim
	states []string
}

func (s *statuses) Get(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	return s.live.DeepCopy(), nil
}

func (s *statuses) UpdateStatus(_ context.Context, c *v1.PersistentVolumeClaim, st v1.PersistentVolumeClaimStatus) (*v1.PersistentVolumeClaim, error) {
	if c.ResourceVersion != s.live.ResourceVersion {
		return nil, errors.New("the object has been modified")
	}
	out := string(st.AllocatedResourceStatuses[v1.ResourceStorage]) + " " + st.Capacity.Storage().String()
	for _, c := range st.Conditions {
		out += " " + string(c.Type)
	}
	s.states = append(s.states, out)
	s.live.Status = st
	s.live.ResourceVersion += "+"
	return s.live.DeepCopy(), nil
}

// The claim in memory may be a minute old: the current one is read first, each status is based on
// the previous one, and a finished expansion is not repeated while the claim in memory still
// requests it.
func TestExpansionReadsTheClaimFirst(t *testing.T) {
	const pending, infeasible = v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInfeasible
	for name, c := range map[string]struct {
		live  *v1.PersistentVolumeClaim
		uid   types.UID
		calls int
		again bool // by the claim in memory
	}{
		"another version": {live: claimWith("1Gi", "2Gi", pending), calls: 1},
		"to another size": {live: claimWith("1Gi", "3Gi", pending), calls: 1, again: true},
		"done":            {live: claimWith("2Gi", "2Gi", ""), again: true},
		"impossible":      {live: claimWith("1Gi", "2Gi", infeasible), again: true},
		"another claim":   {live: claimWith("1Gi", "2Gi", pending), uid: "other", again: true},
	} {
		n := newNode(t, object(nil), func(cfg *csitest.Config) { stages(cfg); cfg.Capabilities = append(cfg.Capabilities, csitest.Expand) })
		n.register()
		v := n.volume("u1", persistent("h1", sized("2Gi")))
		n.must(v)
		c.live.ResourceVersion, c.live.UID = "7", c.uid
		claims := &statuses{live: c.live}
		e := Expansion{Pod: v.Pod, Spec: v.Spec, Claim: claimWith("1Gi", "2Gi", pending)}
		e.Claim.ResourceVersion = "6"
		done, err := n.m.Expand(t.Context(), e, claims)
		if err != nil || done != (c.calls > 0) || n.driver.Count("NodeExpandVolume") != c.calls {
			t.Errorf("%s: %t (%v), %d calls", name, done, err, n.driver.Count("NodeExpandVolume"))
		}
		if n.m.Needed(e) != c.again {
			t.Errorf("%s: again %t", name, n.m.Needed(e))
		}
		if want := c.live.Status.AllocatedResources.Storage().String(); c.calls > 0 && claims.live.Status.Capacity.Storage().String() != want {
			t.Errorf("%s: the claim has %s, want %s", name, claims.live.Status.Capacity.Storage(), want)
		}
		n.unmount(v)
		n.clean()
		n.stop()
	}
}

func TestExpansionIsNotedOnTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		code   codes.Code
		cannot bool
		states string
		again  bool // it is tried again
		asks   string
	}{
		"given up":    {codes.Internal, false, "NodeResizeInProgress 1Gi FileSystemResizePending, NodeResizeInfeasible 1Gi FileSystemResizePending NodeResizeError", false, "1536Mi"},
		"as asked":    {codes.Internal, false, "NodeResizeInProgress 1Gi FileSystemResizePending, NodeResizeInProgress 1Gi FileSystemResizePending NodeResizeError", true, "2Gi"},
		"success":     {codes.OK, false, "NodeResizeInProgress 1Gi FileSystemResizePending, 2Gi", false, ""},
		"busy":        {codes.Unavailable, false, "NodeResizeInProgress 1Gi FileSystemResizePending", true, ""},
		"broken":      {codes.Internal, false, "NodeResizeInProgress 1Gi FileSystemResizePending, NodeResizeInProgress 1Gi FileSystemResizePending NodeResizeError", true, ""},
		"too large":   {codes.OutOfRange, false, "NodeResizeInProgress 1Gi FileSystemResizePending, NodeResizeInfeasible 1Gi FileSystemResizePending NodeResizeError", false, ""},
		"in use":      {codes.FailedPrecondition, false, "NodeResizeInProgress 1Gi FileSystemResizePending, NodeResizeInProgress 1Gi FileSystemResizePending NodeResizeError", false, ""},
		"unsupported": {codes.OK, true, "NodeResizeInProgress 1Gi FileSystemResizePending", true, ""},
	} {
		n := newNode(t, object(nil), func(cfg *csitest.Config) {
			stages(cfg)
			if !c.cannot {
				cfg.Capabilities = append(cfg.Capabilities, csitest.Expand)
			}
			cfg.Fault = func(m string, _ proto.Message) csitest.Fault {
				if m == "NodeExpandVolume" && c.code != codes.OK {
					return csitest.Code(c.code)
				}
				return csitest.Fault{}
			}
		})
		n.register()
		v := n.volume("u1", persistent("h1", sized("2Gi")))
		e := Expansion{Pod: v.Pod, Spec: v.Spec, Claim: claimWith("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimFileSystemResizePending)}
		if c.asks != "" {
			e.Claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse(c.asks)}
		}
		if n.m.Needed(e) {
			t.Errorf("%s: it is not mounted", name)
		}
		n.must(v)
		notes := &statuses{live: e.Claim}
		done, err := n.m.Expand(t.Context(), e, notes)
		if !done || (err == nil) != (name == "success") || c.cannot != errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %t (%v)", name, done, err)
		}
		if got := strings.Join(notes.states, ", "); strings.TrimSpace(strings.ReplaceAll(got, ",  ", ", ")) != c.states {
			t.Errorf("%s: the claim had %s", name, got)
		}
		if n.m.Needed(e) != c.again {
			t.Errorf("%s: again %t", name, n.m.Needed(e))
		}
		if !c.cannot {
			r := last[*spec.NodeExpandVolumeRequest](t, n.driver)
			if r.GetVolumePath() != v.Path+"/mount" || r.GetStagingTargetPath() != v.DevicePath || r.GetCapacityRange().GetRequiredBytes() != 2<<30 || r.GetVolumeCapability() == nil {
				t.Errorf("%s: asked %v", name, r)
			}
		}
		n.unmount(v)
		n.clean()
		n.stop()
	}
}

func TestAloneAVolumeGrowsWithItsManifest(t *testing.T) {
	n := newNode(t, nil, func(cfg *csitest.Config) { stages(cfg); cfg.Capabilities = append(cfg.Capabilities, csitest.Expand) })
	n.register()
	v := n.volume("u1", persistent("h1", sized("1Gi")))
	n.must(v)
	e := Expansion{Pod: v.Pod, Spec: persistent("h1", sized("2Gi")), Claim: &v1.PersistentVolumeClaim{}}
	if done, err := n.m.Expand(t.Context(), e, nil); !done || err != nil || n.m.Needed(e) {
		t.Errorf("%t (%v), again %t", done, err, n.m.Needed(e))
	}
	readOnly := e
	readOnly.Spec = &volumemgr.Spec{PersistentVolume: persistent("h1", sized("3Gi")).PersistentVolume, ReadOnly: true}
	if n.m.Needed(readOnly) {
		t.Error("a volume that is only read is made larger")
	}
}

// A driver is asked how full its volumes are, and negative numbers are none.
func TestUsageIsTheDrivers(t *testing.T) {
	n := newNode(t, nil, func(c *csitest.Config) {
		c.Capabilities = []spec.NodeServiceCapability_RPC_Type{csitest.Stage, csitest.Stats, csitest.Health}
	})
	n.register()
	v := n.volume("u1", persistent("h1"))
	var warned []string
	v.Warn = func(reason, text string) { warned = append(warned, reason+": "+text) }
	n.must(v)
	n.driver.SetStats(&spec.NodeGetVolumeStatsResponse{
		Usage: []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: 100, Used: 40, Available: -7}, {Unit: spec.VolumeUsage_INODES, Total: 9}},
	})
	n.driver.SetHealth(&spec.VolumeHealth{VolumeId: "h1", HealthStatuses: []*spec.VolumeHealth_VolumeHealthEntry{
		{Status: 77, Reason: "Unknown"},
		{Status: spec.VolumeHealthErrorType_DEGRADED, Reason: "DiskMissing", Message: "a disk is missing"},
	}})
	for range 2 {
		u, err := n.m.Plugin().Measure(t.Context(), v)
		if err != nil || u.Capacity != 100 || u.Used != 40 || u.Available != -1 || u.Inodes != 9 {
			t.Errorf("%+v (%v)", u, err)
		}
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "VolumeConditionAbnormal") || !strings.HasSuffix(warned[0], " says: degraded (DiskMissing): a disk is missing") {
		t.Errorf("warned %q", warned)
	}
	// Without the driver, the file system is asked.
	n.m.Registrar().Deregister(testDriver, n.socket)
	if u, err := n.m.Plugin().Measure(t.Context(), v); err != nil || u.Capacity <= 0 {
		t.Errorf("%+v (%v)", u, err)
	}
}
