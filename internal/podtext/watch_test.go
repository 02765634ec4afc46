package podtext

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		web, db := testPod("default", "web"), testPod("default", "db")
		db.UID = "uid-2"
		start := metav1.Now()
		web.CreationTimestamp, db.Status.StartTime = start, &start
		crashed := web.DeepCopy()
		crashed.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "c", RestartCount: 1, State: waiting("CrashLoopBackOff")}
		lists := [][]v1.Pod{{*web}, {*web}, {*web, *db}, {*crashed, *db}, {*db}}
		var b bytes.Buffer
		err := Watch(ctx, &b, false, func(context.Context) ([]v1.Pod, error) {
			next := lists[0]
			if lists = lists[1:]; len(lists) == 0 {
				time.AfterFunc(time.Millisecond, cancel)
				lists = [][]v1.Pod{next}
			}
			return next, nil
		})
		const want = `
NAMESPACE   NAME        READY       STATUS      RESTARTS    AGE
default     web         1/1         Running     0           0s
default     db          1/1         Running     0           2s
default     web         0/1         CrashLoopBackOff   1           3s
default     web         0/1         Deleted     0           4s
`
		if got := "\n" + b.String(); err != nil || got != want {
			t.Errorf("%v, got%s\nwant%s", err, got, want)
		}
	})
}

func TestWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no agent answers")
		if err := Watch(t.Context(), &bytes.Buffer{}, false, func(context.Context) ([]v1.Pod, error) { return nil, gone }); err != gone {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Watch(ctx, &bytes.Buffer{}, false, func(ctx context.Context) ([]v1.Pod, error) { return nil, ctx.Err() }); err != nil {
			t.Errorf("after Ctrl-C: %v", err)
		}
	})
}
