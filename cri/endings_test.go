package cri

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// dyingRuntime has one dead container in each of its pods.
type dyingRuntime struct {
	ReadRuntime
	pods map[string]bool
}

func (d *dyingRuntime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return nil, nil
}

func (d *dyingRuntime) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	uid := f.GetLabelSelector()[LabelPodUID]
	if !d.pods[uid] {
		return nil, nil
	}
	return []*runtimeapi.Container{{
		Id: "c-" + uid, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		Labels: map[string]string{LabelPodUID: uid, LabelPodName: "p", LabelPodNamespace: "ns"},
	}}, nil
}

func (d *dyingRuntime) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, Message: "it ended",
	}}, nil
}

// Ends of containers are forgotten with their pods, without any list.
func TestEndingsGoWithTheirPods(t *testing.T) {
	for how, leave := range map[string]func(r *Reader, uid types.UID){
		"a look": func(r *Reader, uid types.UID) {
			if _, err := r.Inspect(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
		},
		"an event": func(r *Reader, uid types.UID) {
			r.noted(observed.Event{UID: uid, ID: "c-" + string(uid), Kind: observed.ContainerDeleted})
		},
	} {
		t.Run(how, func(t *testing.T) {
			rt := &dyingRuntime{pods: map[string]bool{}}
			r := NewReader(rt)
			for i := range 5000 {
				uid := types.UID(fmt.Sprint("u", i))
				rt.pods[string(uid)] = true
				if p, err := r.Inspect(t.Context(), uid); err != nil || len(p.Containers) != 1 {
					t.Fatalf("%+v, %v", p, err)
				}
				if r.dead.count != 1 {
					t.Fatalf("%d ends are known while one container is dead", r.dead.count)
				}
				delete(rt.pods, string(uid))
				leave(r, uid)
				if r.dead.count != 0 || r.dead.bytes != 0 || len(r.dead.pods) != 0 {
					t.Fatalf("after pod %d: %d ends of %d bytes in %d pods", i, r.dead.count, r.dead.bytes, len(r.dead.pods))
				}
			}
		})
	}
}

// However many containers are dead and whatever they say, the memory of them is
// bounded, in number and in bytes.
func TestEndingsAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name    string
		message int
		most    int // entries
	}{
		{"many", 0, maxDead},
		{"large", maxKept, maxKeptAll / maxKept},
		{"too large", maxKept + 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEndings()
			for i := range 2 * maxDead {
				e.add(types.UID(fmt.Sprint("u", i%7)), &observed.Container{ID: fmt.Sprint("c", i), Message: strings.Repeat("x", tc.message)})
			}
			if e.count != tc.most || e.bytes != tc.most*tc.message {
				t.Errorf("%d ends of %d bytes, want %d", e.count, e.bytes, tc.most)
			}
			e.keepAll(func(string) bool { return false })
			if e.count != 0 || e.bytes != 0 || len(e.pods) != 0 {
				t.Errorf("%d ends of %d bytes are left", e.count, e.bytes)
			}
		})
	}
}

// One that is told of again counts once.
func TestAnEndingToldOfAgain(t *testing.T) {
	e := newEndings()
	for i := range 10 {
		e.add("u", &observed.Container{ID: "c", ExitCode: new(int32(i)), Message: strings.Repeat("x", i)})
	}
	if c, ok := e.get("u", "c"); !ok || c.Code() != 9 || e.count != 1 || e.bytes != 9 {
		t.Errorf("%+v, %d ends of %d bytes", c, e.count, e.bytes)
	}
}
