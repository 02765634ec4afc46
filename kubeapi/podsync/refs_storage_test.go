package podsync_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeapi/podsync"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// node is the Node as the server has it.
func node(srv *kubeapitest.Server) *v1.Node {
	n, _ := srv.Get(&v1.Node{}, "", "edge-1").(*v1.Node)
	return n
}

func storageStart(t *testing.T, srv *kubeapitest.Server, m podsync.StorageMemory) (*podsync.Storage, func()) {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{REST: srv.Config()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := podsync.NewStorage(podsync.StorageConfig{
		Client: c, NodeName: "edge-1", Node: func() (*v1.Node, bool) { return node(srv), true }, Migrated: []string{"kubernetes.io/a", "kubernetes.io/b"}, Memory: m,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, testrun.Start(t, s.Run)
}

func TestDriversAreFollowedOnceAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, m := kubeapitest.New(), &checkpointtest.Disk{}
		srv.Create(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
		srv.Create(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "rich"}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(false), PodInfoOnMount: new(true), VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, FSGroupPolicy: new(storagev1.FileFSGroupPolicy),
			TokenRequests: []storagev1.TokenRequest{{Audience: "a", ExpirationSeconds: new(int64(600))}}, RequiresRepublish: new(true), SELinuxMount: new(true),
			NodeAllocatableUpdatePeriodSeconds: new(int64(30)), ServiceAccountTokenInSecrets: new(true),
		}})
		s, stop := storageStart(t, srv, m)
		synctest.Wait()
		if n := srv.Count("list", kubeapi.CSIDrivers) + srv.Count("watch", kubeapi.CSIDrivers); n != 0 {
			t.Errorf("%d calls, and nobody asked", n)
		}
		want := plugins.CSIDriver{Name: "plain", AttachRequired: true, Persistent: true, FSGroupPolicy: plugins.FSGroupByType}
		if d, err := s.Driver(t.Context(), "plain"); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("plain: %+v (%v)", d, err)
		}
		want = plugins.CSIDriver{
			Name: "rich", PodInfoOnMount: true, Ephemeral: true, FSGroupPolicy: plugins.FSGroupFile, TokensInSecrets: true, RequiresRepublish: true, SELinuxMount: true,
			TokenRequests: []plugins.TokenRequest{{Audience: "a", ExpirationSeconds: new(int64(600))}}, UpdatePeriod: 30 * time.Second,
		}
		if d, err := s.Driver(t.Context(), "rich"); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("rich: %+v (%v)", d, err)
		}
		if _, err := s.Driver(t.Context(), "none"); !errors.Is(err, plugins.ErrNotFound) {
			t.Errorf("none: %v", err)
		}
		srv.Remove(kubeapi.CSIDrivers, "", "plain")
		time.Sleep(time.Second)
		if _, err := s.Driver(t.Context(), "plain"); !errors.Is(err, plugins.ErrNotFound) {
			t.Errorf("removed: %v", err)
		}
		stop()
		// The next life knows them while nobody answers, and what it does not know it
		// does not take for missing.
		srv.Stop()
		s, stop = storageStart(t, srv, m)
		if d, err := s.Driver(t.Context(), "rich"); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("remembered: %+v (%v)", d, err)
		}
		stop()
		s, stop = storageStart(t, srv, nil)
		if _, err := s.Driver(t.Context(), "rich"); err == nil || errors.Is(err, plugins.ErrNotFound) {
			t.Errorf("unknown: %v", err)
		}
		stop()
	})
}

// apply shows drivers on a node with this CSINode and says what became of both.
func apply(t *testing.T, n *v1.Node, has *storagev1.CSINode, installed []plugins.CSINodeDriver, removed ...string) (*v1.Node, *storagev1.CSINode, int, error) {
	t.Helper()
	srv := kubeapitest.New()
	n.Name = "edge-1"
	srv.Create(n)
	if has != nil {
		has.Name = "edge-1"
		srv.Create(has)
	}
	var err error
	var writes int
	synctest.Test(t, func(t *testing.T) {
		s, stop := storageStart(t, srv, nil)
		err = s.Apply(t.Context(), installed, removed)
		writes = srv.Count("patch", kubeapi.Nodes) + srv.Count("patch", kubeapi.CSINodes) + srv.Count("create", kubeapi.CSINodes) + srv.Count("delete", kubeapi.CSINodes)
		stop()
	})
	o, _ := srv.Get(&storagev1.CSINode{}, "", "edge-1").(*storagev1.CSINode)
	return node(srv), o, writes, err
}

func entries(o *storagev1.CSINode) string {
	if o == nil {
		return "none"
	}
	var out []string
	for _, d := range o.Spec.Drivers {
		e := d.Name + "=" + d.NodeID + "[" + strings.Join(d.TopologyKeys, ",") + "]"
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			e += resource.NewQuantity(int64(*d.Allocatable.Count), resource.DecimalSI).String()
		}
		out = append(out, e)
	}
	return strings.Join(out, " ")
}

func TestTheNodesObjectsShowDrivers(t *testing.T) {
	own := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "edge-1", UID: "uid"}}
	csiNode := func(owner []metav1.OwnerReference, d ...storagev1.CSINodeDriver) *storagev1.CSINode {
		return &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner, Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/a,kubernetes.io/b"}},
			Spec:       storagev1.CSINodeSpec{Drivers: d},
		}
	}
	other := storagev1.CSINodeDriver{Name: "other", NodeID: "o", TopologyKeys: []string{}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(3))}}
	mine := plugins.CSINodeDriver{Name: "d", NodeID: "n1", Topology: map[string]string{"zone": "a", "rack": "7"}, Limit: 5}
	const annotation = "csi.volume.kubernetes.io/nodeid"
	for name, c := range map[string]struct {
		node      *v1.Node
		has       *storagev1.CSINode
		installed []plugins.CSINodeDriver
		removed   []string

		ids, entries, bad string
		labels            map[string]string
		writes            int // -1: any
	}{
		"nothing":        {node: &v1.Node{}, entries: "", writes: 1},
		"the first":      {node: &v1.Node{}, installed: []plugins.CSINodeDriver{mine}, ids: `{"d":"n1"}`, entries: "d=n1[rack,zone]5", labels: mine.Topology, writes: 2},
		"beside another": {node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: `{"other":"o"}`}}}, has: csiNode(own, other), installed: []plugins.CSINodeDriver{mine}, ids: `{"d":"n1","other":"o"}`, entries: "other=o[]3 d=n1[rack,zone]5", labels: mine.Topology, writes: 2},
		"nothing new": {
			node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a", "rack": "7"}, Annotations: map[string]string{annotation: `{"d":"n1"}`}}},
			has:  csiNode(own, storagev1.CSINodeDriver{Name: "d", NodeID: "n1", TopologyKeys: []string{"rack", "zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(5))}}), installed: []plugins.CSINodeDriver{mine},
			ids: `{"d":"n1"}`, entries: "d=n1[rack,zone]5", labels: mine.Topology, writes: 0,
		},
		"another limit": {
			node: &v1.Node{}, has: csiNode(own, storagev1.CSINodeDriver{Name: "d", NodeID: "n1", TopologyKeys: []string{"rack", "zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(9))}}), installed: []plugins.CSINodeDriver{mine},
			ids: `{"d":"n1"}`, entries: "d=n1[rack,zone]5", labels: mine.Topology, writes: 2,
		},
		"another ID": {
			node: &v1.Node{}, has: csiNode(own, storagev1.CSINodeDriver{Name: "d", NodeID: "n0"}), installed: []plugins.CSINodeDriver{{Name: "d", NodeID: "n1"}},
			ids: `{"d":"n1"}`, entries: "d=n1[]", writes: 3,
		},
		"another zone": {
			node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "b"}}}, has: csiNode(own, other), installed: []plugins.CSINodeDriver{mine, {Name: "e", NodeID: "n2"}},
			ids: `{"e":"n2"}`, entries: "other=o[]3 e=n2[]", labels: map[string]string{"zone": "b"}, bad: `topology label zone: the driver has "a", the node has "b"`, writes: 2,
		},
		"no node ID":       {node: &v1.Node{}, installed: []plugins.CSINodeDriver{{Name: "d"}}, entries: "", bad: "returned no node ID", writes: 1},
		"broken JSON":      {node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: "{"}}}, installed: []plugins.CSINodeDriver{mine}, ids: "{", entries: "none", bad: "want a JSON object", writes: 0},
		"a foreign object": {node: &v1.Node{}, has: csiNode([]metav1.OwnerReference{{Kind: "Node", UID: "another"}}, other), entries: "none", bad: "replacing it", writes: 1},
		"removed": {
			node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: `{"d":"n1","other":"o"}`}, Labels: map[string]string{"zone": "a"}}},
			has:  csiNode(own, other, storagev1.CSINodeDriver{Name: "d", NodeID: "n1"}), removed: []string{"d"}, ids: `{"other":"o"}`, entries: "other=o[]3", labels: map[string]string{"zone": "a"}, writes: 2,
		},
		"the last removed": {node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: `{"d":"n1"}`}}}, has: csiNode(own), removed: []string{"d"}, ids: "", entries: "", writes: 1},
	} {
		c.node.UID = types.UID("uid")
		n, o, writes, err := apply(t, c.node, c.has, c.installed, c.removed...)
		if (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v", name, err)
		}
		if n.Annotations[annotation] != c.ids || entries(o) != c.entries || len(n.Labels)+len(c.labels) > 0 && !reflect.DeepEqual(n.Labels, c.labels) || writes != c.writes {
			t.Errorf("%s: IDs %s, entries %s, labels %v, %d writes", name, n.Annotations[annotation], entries(o), n.Labels, writes)
		}
	}
}

// A volume is attached when its VolumeAttachment and the node's object say so, and the
// node has said before that it will use it.
func TestAttachmentsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		const volume = v1.UniqueVolumeName("kubernetes.io/csi/d^h")
		srv.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}})
		s, stop := storageStart(t, srv, nil)
		defer stop()
		var notes []string
		type answer struct {
			metadata map[string]string
			err      error
		}
		got := make(chan answer, 1)
		wait := func() {
			m, err := s.Wait(t.Context(), plugins.Attachment{Name: "csi-1", Volume: volume}, func(n string) { notes = append(notes, n) })
			got <- answer{m, err}
		}
		go wait()
		step := func(want string, f func()) {
			t.Helper()
			f()
			s.NodeChanged()
			time.Sleep(2 * lookAfter)
			synctest.Wait()
			if len(notes) == 0 || !strings.Contains(notes[len(notes)-1], want) {
				t.Errorf("waits for %q, want %q", notes, want)
			}
		}
		step("in use", func() {})
		update := func(f func(*v1.Node)) { n := node(srv); f(n); srv.Put(n) }
		step("a controller to make VolumeAttachment csi-1", func() {
			update(func(n *v1.Node) { n.Status.VolumesInUse = []v1.UniqueVolumeName{volume} })
		})
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "edge-1"}}
		step("attacher d", func() { srv.Create(a) })
		step("which says: no such disk", func() { a.Status.AttachError = &storagev1.VolumeError{Message: "no such disk"}; srv.Put(a) })
		step("attacher d", func() {
			a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "1"}}
			srv.Put(a)
		})
		update(func(n *v1.Node) { n.Status.VolumesAttached = []v1.AttachedVolume{{Name: volume}} })
		at := time.Now()
		s.NodeChanged()
		if r := <-got; r.err != nil || r.metadata["lun"] != "1" || time.Since(at) > 0 {
			t.Errorf("got %+v after %v", r, time.Since(at))
		}
		for want, change := range map[string]func(){
			"has reached the volume limit": func() {
				a.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: new(int32(8))}}
			},
			"is for node": func() { a.Spec.NodeName = "edge-2" },
		} {
			b := *a
			change()
			srv.Put(a)
			go wait()
			if r := <-got; r.err == nil || !strings.Contains(r.err.Error(), want) || (want == "has reached the volume limit") != errors.Is(r.err, plugins.ErrExhausted) {
				t.Errorf("%s: %+v", want, r)
			}
			a = &b
		}
	})
}

const lookAfter = 15 * time.Second

// A claim's status is patched where it differs, and only as it was read.
func TestClaimStatusesArePatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := kubeapitest.New()
		c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
		c.Status.Phase = v1.ClaimBound
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{"storage": v1.PersistentVolumeClaimNodeResizeInProgress, "other": "x"}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
		srv.Create(c)
		c = srv.Get(&v1.PersistentVolumeClaim{}, "shop", "data").(*v1.PersistentVolumeClaim)
		s, stop := storageStart(t, srv, nil)
		defer stop()
		st := *c.Status.DeepCopy()
		st.Capacity = v1.ResourceList{"storage": resource.MustParse("2Gi")}
		delete(st.AllocatedResourceStatuses, "storage")
		st.Conditions = nil
		said, err := s.Claims().UpdateStatus(t.Context(), c, st)
		if err != nil {
			t.Fatal(err)
		}
		got := srv.Get(&v1.PersistentVolumeClaim{}, "shop", "data").(*v1.PersistentVolumeClaim)
		if read, err := s.Claims().Get(t.Context(), "shop", "data"); err != nil || read.ResourceVersion != got.ResourceVersion || said.ResourceVersion != got.ResourceVersion {
			t.Errorf("versions: read %s, returned %s, there is %s (%v)", read.ResourceVersion, said.ResourceVersion, got.ResourceVersion, err)
		}
		if !reflect.DeepEqual(got.Status.AllocatedResourceStatuses, st.AllocatedResourceStatuses) || got.Status.Capacity.Storage().String() != "2Gi" || len(got.Status.Conditions) != 0 || got.Status.Phase != v1.ClaimBound {
			t.Errorf("got %+v", got.Status)
		}
		n := srv.Count("patch", kubeapi.PersistentVolumeClaims)
		if _, err := s.Claims().UpdateStatus(t.Context(), got, got.Status); err != nil || srv.Count("patch", kubeapi.PersistentVolumeClaims) != n {
			t.Errorf("patched for nothing (%v)", err)
		}
		if _, err := s.Claims().UpdateStatus(t.Context(), c, v1.PersistentVolumeClaimStatus{}); err == nil {
			t.Error("an old claim was patched")
		}
	})
}
