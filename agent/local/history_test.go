package local_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

// measured is a node whose figures grow by one with each reading.
type measured struct {
	mu       sync.Mutex
	readings uint64
	pods     []string // UIDs
	err      error
}

func (m *measured) set(err error, pods ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods, m.err = pods, err
}

func (m *measured) totals(context.Context) (*statsapi.Summary, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readings++
	s := statsapi.Summary{Node: statsapi.NodeStats{
		CPU: &statsapi.CPUStats{UsageNanoCores: new(m.readings * 2e6)}, Fs: &statsapi.FsStats{CapacityBytes: new(uint64(1000)), AvailableBytes: new(1000 - m.readings)},
		Network: &statsapi.NetworkStats{InterfaceStats: statsapi.InterfaceStats{RxBytes: new(m.readings * 300), TxBytes: new(m.readings * 30)}},
	}}
	for _, uid := range m.pods {
		s.Pods = append(s.Pods, statsapi.PodStats{
			PodRef: statsapi.PodReference{UID: uid}, CPU: &statsapi.CPUStats{UsageNanoCores: new(m.readings * 1e6)}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(m.readings)},
		})
	}
	return &s, m.err
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{pods: []string{"a", "b"}}
		h := &local.History{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.Run(ctx, m.totals) }()
		check := func(what string, n int, pods map[string][]int64) {
			t.Helper()
			synctest.Wait()
			u := h.Usage()
			lists := [][]int64{u.Node.CPU, u.Node.Memory, u.Node.Disk, u.Node.Received, u.Node.Sent}
			for uid, p := range u.Pods {
				lists = append(lists, p.CPU, p.Memory)
				if want := pods[uid]; want == nil || !slices.Equal(want, p.CPU[len(p.CPU)-len(want):]) {
					t.Errorf("%s: pod %s has %v; want %v at its end", what, uid, p.CPU, want)
				}
			}
			if len(u.Times) != n || len(u.Pods) != len(pods) {
				t.Errorf("%s: %d times, %d pods; want %d and %d", what, len(u.Times), len(u.Pods), n, len(pods))
			}
			for i, l := range lists {
				if len(l) != n {
					t.Errorf("%s: list %d has %d values; want %d", what, i, len(l), n)
				}
			}
		}
		check("at first", 1, map[string][]int64{"a": {1}, "b": {1}})
		time.Sleep(61 * time.Second)
		synctest.Wait()
		m.set(nil, "a", "c")
		time.Sleep(30 * time.Second)
		check("a pod goes, another comes", 4, map[string][]int64{"a": {1, 2, 3, 4}, "c": {-1, -1, -1, 4}})
		m.set(errors.New("the runtime does not answer"), "c")
		time.Sleep(30 * time.Second)
		check("the runtime does not answer", 5, map[string][]int64{"a": {4, -1}, "c": {4, 5}})
		m.set(nil, "c")
		time.Sleep(2 * time.Hour)
		check("full", 120, map[string][]int64{"c": {244, 245}})
		u := h.Usage()
		if last := 119; u.Node.CPU[last] != 490 || u.Node.Memory[last] != -1 || u.Node.Disk[last] != 245 || u.Node.DiskSize != 1000 || u.Node.Received[last] != 10 || u.Node.Sent[last] != 1 {
			t.Errorf("the node: %+v", u.Node)
		}
		if d := u.Times[119].Sub(u.Times[0]); d != 119*30*time.Second {
			t.Errorf("an hour is %v", d)
		}
		u.Node.CPU[0], u.Pods["c"].CPU[0] = -7, -7
		if again := h.Usage(); again.Node.CPU[0] == -7 || again.Pods["c"].CPU[0] == -7 {
			t.Error("the answer is no copy")
		}
		cancel()
		<-done
	})
}

// remembers is an agent with a history.
type remembers struct{ local.Agent }

func (remembers) History() local.Usage {
	return local.Usage{Times: []time.Time{time.Unix(7, 0)}, Node: local.NodeUsage{PodUsage: local.PodUsage{CPU: []int64{7}}}, Pods: map[string]local.PodUsage{"uid": {Memory: []int64{8}}}}
}

func TestHistoryOverTheSocket(t *testing.T) {
	c := local.NewClient(serve(t, remembers{&fakeAgent{}}, nil))
	u, err := c.History(t.Context())
	if err != nil || len(u.Times) != 1 || !u.Times[0].Equal(time.Unix(7, 0)) || u.Node.CPU[0] != 7 || u.Pods["uid"].Memory[0] != 8 {
		t.Errorf("%+v, %v", u, err)
	}
	w := httptest.NewRecorder()
	local.Handler(&fakeAgent{}, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/history", nil))
	if w.Code != http.StatusNotImplemented {
		t.Errorf("an agent that remembers nothing: %d", w.Code)
	}
}
