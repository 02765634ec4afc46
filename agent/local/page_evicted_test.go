package local_test

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/local"
)

// evicting has evicted its pods four times, and restarted their containers thrice.
type evicting struct{ *agent }

func (e evicting) AllEvents(context.Context) (*v1.EventList, error) {
	p := &e.pods[0]
	return &v1.EventList{Items: []v1.Event{{
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Reason: "Evicted", Count: 4,
		LastTimestamp: metav1.NewTime(time.Now().Add(-200*time.Minute - time.Second)),
	}}}, nil
}

func (e evicting) Events(ctx context.Context, _, _ string) (*v1.EventList, error) {
	return e.AllEvents(ctx)
}

func TestPageCountsEvictionsAsRestarts(t *testing.T) {
	p := newPage(t, evicting{&agent{pods: []v1.Pod{pod("hog", v1.PodRunning, v1.ConditionTrue)}}})
	for path, want := range map[string]string{
		"/":                 `7 <span class="dim">(evicted 3h20m ago)</span>`,
		"/pods/default/hog": "<b>7</b> restarts (evicted 3h20m ago)",
	} {
		if body := get(p, path).Body.String(); !strings.Contains(body, want) {
			t.Errorf("%s has not %q:\n%s", path, want, body)
		}
	}
}

var _ local.PageAgent = evicting{}
