package server_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/server"
)

// While a deleted pod ends, a path names the pod that has taken its name, wherever the
// list has the two.
func TestPathNamesTheNewestPod(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	pod := func(uid types.UID, age time.Duration, ends bool) *v1.Pod {
		p := webPod()
		p.UID, p.CreationTimestamp = uid, metav1.NewTime(made.Add(-age))
		if ends {
			p.DeletionTimestamp = &metav1.Time{Time: made}
		}
		return p
	}
	for _, tc := range []struct {
		name string
		pods pods
		path string
		want types.UID
	}{
		{"one that ends comes last", pods{pod("new", 0, false), pod("old", time.Hour, true)}, "/exec/default/web/c", "new"},
		{"one that ends comes first", pods{pod("old", time.Hour, true), pod("new", 0, false)}, "/attach/default/web/c", "new"},
		{"one that ends is newer by a wrong clock", pods{pod("new", time.Hour, false), pod("old", 0, true)}, "/portForward/default/web", "new"},
		{"all end", pods{pod("new", 0, true), pod("old", time.Hour, true)}, "/exec/default/web/c", "new"},
		{"none ends", pods{pod("new", 0, false), pod("old", time.Hour, false)}, "/exec/default/web/c", "new"},
		{"named by its UID", pods{pod("new", 0, false), pod("old", time.Hour, true)}, "/exec/default/web/old/c", "old"},
	} {
		c := whole(t)
		asked := &instances{}
		c.Pods, c.Instances = tc.pods, asked
		do(handler(t, c), "POST", tc.path+"?command=true&output=1&port=80", "")
		if asked.pod != tc.want {
			t.Errorf("%s: pod %q, want %q", tc.name, asked.pod, tc.want)
		}
	}
}

// instances notes which pod somebody asked for, and has none.
type instances struct{ pod types.UID }

func (i *instances) ContainerID(ctx context.Context, pod types.UID, _ string) (string, error) {
	return i.SandboxID(ctx, pod)
}

func (i *instances) SandboxID(_ context.Context, pod types.UID) (string, error) {
	i.pod = pod
	return "", server.ErrNotFound
}
