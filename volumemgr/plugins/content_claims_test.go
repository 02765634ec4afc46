package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// objects are a source.
type objects struct {
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
	err     error
}

func (o objects) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if c := o.claims[namespace+"/"+name]; c != nil || o.err != nil {
		return c, o.err
	}
	return nil, plugins.ErrNotFound
}

func (o objects) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if pv := o.volumes[name]; pv != nil {
		return pv, nil
	}
	return nil, plugins.ErrNotFound
}

func claim(name, volume string, change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: volume}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	if change != nil {
		change(c)
	}
	return c
}

func volume(name string, ref *v1.ObjectReference) *v1.PersistentVolume {
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{ClaimRef: ref}}
}

func ref(name, uid string) *v1.ObjectReference {
	return &v1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID(uid)}
}

func byClaim(name string, readOnly bool) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}
}

func ephemeral(volume string) v1.VolumeSource {
	return v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume},
	}}}
}

func controlledBy(uid types.UID) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: new(true)}}
	}
}

func TestResolve(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pod-uid"}}
	unset := func(c *v1.PersistentVolumeClaim) { c.UID, c.Status.Phase = "", "" }
	deleted := func(finalizers ...string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, finalizers
		}
	}
	phase := func(p v1.PersistentVolumeClaimPhase) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.Status.Phase = p }
	}
	for name, c := range map[string]struct {
		vol   v1.VolumeSource
		claim *v1.PersistentVolumeClaim
		pv    *v1.PersistentVolume
		// "" is the volume; alone only if there is no API server
		err, aloneErr string
		readOnly      bool
	}{
		"bound":                        {byClaim("c", false), claim("c", "pv", nil), volume("pv", ref("c", "uid-c")), "", "", false},
		"read-only":                    {byClaim("c", true), claim("c", "pv", nil), volume("pv", ref("c", "uid-c")), "", "", true},
		"no claim":                     {byClaim("c", false), nil, nil, "claim ns/c: not found", "claim ns/c: not found", false},
		"no volume":                    {byClaim("c", false), claim("c", "pv", nil), nil, "persistent volume pv: not found", "persistent volume pv: not found", false},
		"names no volume":              {byClaim("c", false), claim("c", "", nil), nil, "spec.volumeName is empty", "spec.volumeName is empty", false},
		"going":                        {byClaim("c", false), claim("c", "pv", deleted()), nil, "being deleted", "being deleted", false},
		"going, and protected":         {byClaim("c", false), claim("c", "pv", deleted("kubernetes.io/pvc-protection")), volume("pv", ref("c", "uid-c")), "", "", false},
		"lost":                         {byClaim("c", false), claim("c", "pv", phase(v1.ClaimLost)), volume("pv", ref("c", "uid-c")), `phase is "Lost"`, `phase is "Lost"`, false},
		"pending":                      {byClaim("c", false), claim("c", "pv", phase(v1.ClaimPending)), volume("pv", ref("c", "uid-c")), `phase is "Pending"`, "", false},
		"as people write it":           {byClaim("c", false), claim("c", "pv", unset), volume("pv", ref("c", "")), `phase is ""`, "", false},
		"a volume of nobody":           {byClaim("c", false), claim("c", "pv", nil), volume("pv", nil), "claimRef is missing", "claimRef is missing", false},
		"another's volume":             {byClaim("c", false), claim("c", "pv", nil), volume("pv", ref("d", "uid-c")), "bound to claim ns/d", "bound to claim ns/d", false},
		"an earlier claim's volume":    {byClaim("c", false), claim("c", "pv", nil), volume("pv", ref("c", "old")), "UID old, want uid-c", "UID old, want uid-c", false},
		"no UID in the volume":         {byClaim("c", false), claim("c", "pv", nil), volume("pv", ref("c", "")), "another claim", "", false},
		"ephemeral":                    {ephemeral(""), claim("p-v", "pv", controlledBy("pod-uid")), volume("pv", ref("p-v", "uid-p-v")), "", "", false},
		"ephemeral, another's":         {ephemeral("pv"), claim("p-v", "pv", controlledBy("other")), volume("pv", ref("p-v", "uid-p-v")), "not its owner", "not its owner", false},
		"ephemeral, nobody's":          {ephemeral("pv"), claim("p-v", "pv", nil), volume("pv", ref("p-v", "uid-p-v")), "not its owner", "not its owner", false},
		"ephemeral, by its template":   {ephemeral("pv"), nil, volume("pv", ref("p-v", "")), "not found", "", false},
		"ephemeral, names no volume":   {ephemeral(""), nil, nil, "not found", "spec.volumeName is empty", false},
		"neither claim nor ephemeral":  {v1.VolumeSource{}, nil, nil, "names no claim", "names no claim", false},
		"ephemeral without a template": {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}, nil, nil, "not found", "spec.volumeName is empty", false},
	} {
		o := objects{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{}}
		if c.claim != nil {
			o.claims["ns/"+c.claim.Name] = c.claim
		}
		if c.pv != nil {
			o.volumes[c.pv.Name] = c.pv
		}
		for alone, want := range map[bool]string{false: c.err, true: c.aloneErr} {
			r, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{Source: o, Alone: alone})
			if err != nil {
				t.Fatal(err)
			}
			spec, err := r.Resolve(t.Context(), pod, &v1.Volume{Name: "v", VolumeSource: c.vol})
			switch {
			case want != "":
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, alone %t: %v, want %q", name, alone, err, want)
				}
			case err != nil || spec.PersistentVolume != c.pv || spec.ReadOnly != c.readOnly:
				t.Errorf("%s, alone %t: %+v, %v", name, alone, spec, err)
			}
		}
	}
}

// An error of a source is an error for the pod; only an object that surely does not exist may be
// treated as empty.
func TestSourceFails(t *testing.T) {
	if _, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{}); err == nil {
		t.Error("no source is fine")
	}
	broken := errors.New("broken")
	r, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{Source: objects{err: broken}, Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []v1.VolumeSource{byClaim("c", false), ephemeral("pv")} {
		if _, err := r.Resolve(t.Context(), &v1.Pod{}, &v1.Volume{Name: "v", VolumeSource: s}); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
}

func ExampleClaimResolver_Resolve() {
	src := objects{
		claims:  map[string]*v1.PersistentVolumeClaim{"ns/data": claim("data", "disk-1", nil)},
		volumes: map[string]*v1.PersistentVolume{"disk-1": volume("disk-1", ref("data", "uid-data"))},
	}
	r, err := plugins.NewClaimResolver(plugins.ClaimResolverConfig{Source: src})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	spec, err := r.Resolve(context.Background(), pod, &v1.Volume{Name: "v", VolumeSource: byClaim("data", true)})
	fmt.Println(spec.Name(), spec.ReadOnly, err)
	_, err = r.Resolve(context.Background(), pod, &v1.Volume{Name: "v", VolumeSource: byClaim("other", false)})
	fmt.Println(err)
	// Output:
	// disk-1 true <nil>
	// claim ns/other: not found
}
