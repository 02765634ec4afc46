package volumemgr_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

const root = "/root"

// rig is a node with a manager on it.
type rig struct {
	*volumemgr.Manager
	t       *testing.T
	node    *plugintest.Node
	fake    *plugintest.Fake
	content *plugintest.FakeContent
	disk    *plugintest.FakeDisk
	claims  claims
	events  events
	stop    func()

	mu    sync.Mutex
	ready []types.UID
}

// start starts a manager on node; it stops with the test. It is called in a
// bubble of synctest.
func start(t *testing.T, node *plugintest.Node, change func(*volumemgr.Config)) *rig {
	t.Helper()
	r := &rig{
		t: t, node: node, claims: claims{},
		fake:    &plugintest.Fake{Node: node},
		content: &plugintest.FakeContent{Fake: plugintest.Fake{Node: node}},
		disk:    &plugintest.FakeDisk{Fake: plugintest.Fake{Node: node}},
	}
	cfg := volumemgr.Config{
		Root: root, Plugins: []volumemgr.Plugin{r.fake, r.content, r.disk}, Mounter: node, Files: node,
		Claims: r.claims, Events: &r.events,
		Ready: func(uid types.UID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ready = append(r.ready, uid)
		},
	}
	if change != nil {
		change(&cfg)
	}
	m, err := volumemgr.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Manager = m
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := m.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

func (r *rig) mount(pod *v1.Pod) volumemgr.Mounts {
	r.t.Helper()
	ms, err := r.Mount(r.t.Context(), pod)
	if err != nil {
		r.t.Fatalf("Mount: %v", err)
	}
	return ms
}

func (r *rig) unmount(uid types.UID) {
	r.t.Helper()
	if err := r.Unmount(r.t.Context(), uid); err != nil {
		r.t.Fatalf("Unmount: %v", err)
	}
}

func (r *rig) state(uid types.UID, name string) volumemgr.State {
	for _, s := range r.Why(uid) {
		if s.Volume == name {
			return s.State
		}
	}
	return "none"
}

func (r *rig) heard() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ready)
}

// events stores the reported events.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Event(_ *v1.Pod, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, kind+" "+reason+" "+message)
}

// claims are persistent volumes by the name of their claim.
type claims map[string]*v1.PersistentVolume

func (c claims) Resolve(_ context.Context, pod *v1.Pod, vol *v1.Volume) (*volumemgr.Spec, error) {
	name := pod.Name + "-" + vol.Name
	readOnly := false
	if p := vol.PersistentVolumeClaim; p != nil {
		name, readOnly = p.ClaimName, p.ReadOnly
	}
	pv := c[name]
	if pv == nil {
		return nil, errors.New("claim " + name + " is not bound")
	}
	return &volumemgr.Spec{PersistentVolume: pv, ReadOnly: readOnly}, nil
}

func localPV(name string, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/dev/" + name}}},
	}
	if change != nil {
		change(pv)
	}
	return pv
}

func block(pv *v1.PersistentVolume) {
	mode := v1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &mode
}

// newPod is a pod whose container mounts all of the volumes.
func newPod(uid types.UID, volumes ...v1.Volume) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + string(uid), UID: uid},
		Spec:       v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "app"}}},
	}
	c := &pod.Spec.Containers[0]
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/mnt/" + v.Name})
	}
	return pod
}

// mapped makes the pod use all of its volumes as devices.
func mapped(pod *v1.Pod) *v1.Pod {
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = nil
	for _, v := range pod.Spec.Volumes {
		c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: v.Name, DevicePath: "/dev/" + v.Name})
	}
	return pod
}

func emptyDir(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func hostPath(name, path string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}}
}

func nfs(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "server", Path: "/" + name}}}
}

func configMap(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: object},
	}}}
}

func claim(name, claimName string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claimName}}}
}

// where a volume of the fakes is.
func where(uid, plugin, name string) string {
	return root + "/pods/" + uid + "/volumes/kubernetes.io~" + plugin + "/" + name
}
