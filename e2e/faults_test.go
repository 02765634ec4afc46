package e2e_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

var outage = flag.Duration("outage", 10*time.Second, "how long the API server is away in tests of that")

// The API server goes and comes back: pods run on, what happened meanwhile is
// told soon, nothing is done twice and nothing is taken back.
func TestOutage(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.kubectl("create", "configmap", "conf", "--from-literal=key=one")
	l.kubectl("create", "secret", "generic", "sec", "--from-literal=key=hidden")
	l.start()
	l.apply(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: keeps, labels: {app: keeps}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: c, configMap: {name: conf}}, {name: s, secret: {secretName: sec}}]
  containers:
  - name: main
    image: %q
    command: [sh, -c, %q]
    volumeMounts: [{name: c, mountPath: /c}, {name: s, mountPath: /s}]
`, busybox, forever))
	l.apply(pod("again", "sleep 2; exit 1"))
	l.ready(1, "app=keeps")
	l.until("a container has ended and begun again", func() error { return l.restarts("again", 1) })

	watched := l.watchRestarts("again")
	defer watched.stop(t)
	for _, c := range []struct {
		name         string
		leave, enter func() error
		meanwhile    func()
	}{
		{"killed", l.killAPI, l.startAPI, func() {}},
		{"killed, and the agent too", l.killAPI, l.startAPI, func() {
			l.killAgent()
			l.launch()
		}},
		{"frozen", func() error { return l.cp.Signal("kube-apiserver", syscall.SIGSTOP) },
			func() error { return l.cp.Signal("kube-apiserver", syscall.SIGCONT) }, func() {}},
		{"the agent killed alone", func() error { return nil }, func() error { return nil }, func() {
			l.killAgent()
			l.launch()
		}},
		{"etcd killed", func() error {
			l.cp.Kill("etcd")
			return nil
		}, l.cp.StartEtcd, func() {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := l.ready(1, "app=keeps")["keeps"]
			l.must(c.leave())
			c.meanwhile()
			time.Sleep(*outage)
			own := l.ofAgent("again")
			if got := l.ofAgent("keeps"); got.UID != before.UID || got.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || !isReady(got) {
				t.Errorf("meanwhile the agent had %+v", got.Status)
			}
			l.must(c.enter())
			back := time.Now()
			l.until("what happened is told", func() error { return l.restarts("again", own.Status.ContainerStatuses[0].RestartCount) })
			told := time.Since(back)
			l.until("the node is ready", func() error { return l.conditionIs(v1.NodeReady, v1.ConditionTrue) })
			after := l.ready(1, "app=keeps")["keeps"]
			t.Logf("away for %v: told %v after its return; the node was ready after %v", *outage, told.Round(10*time.Millisecond), time.Since(back).Round(10*time.Millisecond))
			if after.UID != before.UID || after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
				t.Errorf("before %+v, after %+v", before.Status, after.Status)
			}
		})
	}
}

// A store that was lost, or put back from a copy of earlier, is no order to end
// what runs.
func TestRestoredStore(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.start()
	l.apply(pod("early", forever))
	early := l.ready(1, "")["early"]
	l.cp.Kill("kube-apiserver")
	l.cp.Kill("etcd")
	saved := filepath.Join(l.dir, "saved")
	l.must(os.CopyFS(saved, os.DirFS(l.cp.EtcdDir())))
	l.must(l.cp.StartEtcd())
	l.must(l.startAPI())
	l.until("the node is ready", func() error { return l.conditionIs(v1.NodeReady, v1.ConditionTrue) })
	l.apply(pod("late", forever))
	late := l.ready(2, "")["late"]

	for _, c := range []struct {
		name  string
		store func() error
		has   int
	}{
		{"a copy of earlier", func() error { return os.CopyFS(l.cp.EtcdDir(), os.DirFS(saved)) }, 1},
		{"nothing", func() error { return nil }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.cp.Kill("kube-apiserver")
			l.cp.Kill("etcd")
			l.must(os.RemoveAll(l.cp.EtcdDir()))
			l.must(c.store())
			l.must(l.cp.StartEtcd())
			l.must(l.startAPI())
			l.must(l.cp.StartControllers()) // they do not find out by themselves
			l.until("the node is ready", func() error { return l.conditionIs(v1.NodeReady, v1.ConditionTrue) })
			l.until("new pods run", func() error {
				if err := l.cp.Kubectl(t.Context(), "get", "serviceaccount", "default").Run(); err != nil {
					return err
				}
				cmd := l.cp.Kubectl(t.Context(), "apply", "-f", "-")
				cmd.Stdin = strings.NewReader(pod("new", forever))
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			l.ready(c.has+1, "")
			for _, p := range []*v1.Pod{early, late} {
				if got := l.ofAgent(p.Name); got.Status.ContainerStatuses[0].ContainerID != p.Status.ContainerStatuses[0].ContainerID || !isReady(got) {
					t.Errorf("%s: %+v", p.Name, got.Status)
				}
			}
			l.until("the log has it", func() error {
				if !strings.Contains(l.log.String(), "lost its store or restored a backup") {
					return errors.New("it does not")
				}
				return nil
			})
			l.kubectl("delete", "pod", "new", "--timeout=180s")
		})
	}
}

// Others change pods and the node all the time.
func TestConflicts(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	l.start()
	const pods = 5
	var storm sync.WaitGroup
	end := make(chan struct{})
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		l.apply(strings.Replace(pod(name, "sleep 2"), "spec:\n", "spec:\n  restartPolicy: Never\n", 1))
		storm.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				note := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"storm": fmt.Sprint(n)}}}
				_ = l.cp.Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/default/pods/"+name, note, nil)
				_ = l.cp.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/"+l.node+"/status", note, nil)
			}
		})
	}
	defer storm.Wait()
	defer close(end)
	l.until("all have succeeded", func() error {
		all, err := l.pods("")
		for _, p := range all {
			if p.Status.Phase != v1.PodSucceeded {
				err = fmt.Errorf("%s is %s", p.Name, p.Status.Phase)
			}
		}
		return err
	})
	l.must(l.conditionIs(v1.NodeReady, v1.ConditionTrue))
}

// Every answer takes two seconds.
func TestSlowAPI(t *testing.T) {
	t.Parallel()
	l := newCluster(t)
	path, err := l.cp.KubeconfigAt("https://"+slowly(t, strings.TrimPrefix(l.cp.URL, "https://"), time.Second), l.node, "system:node:"+l.node, "system:nodes")
	l.must(err)
	l.start("--kubeconfig", path)
	began := time.Now()
	const pods = 10
	for i := range pods {
		l.apply(pod(fmt.Sprintf("p%d", i), forever))
	}
	l.ready(pods, "")
	t.Logf("%d pods were ready after %v", pods, time.Since(began).Round(10*time.Millisecond))
	l.kubectl("delete", "pods", "--all", "--timeout=180s")
	l.must(l.conditionIs(v1.NodeReady, v1.ConditionTrue))
}

// Certificates of 20 seconds: they are renewed in time, and when nobody signs
// them any more, pods run on until somebody does.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	l := newCluster(t, "--cluster-signing-duration=20s")
	kubeconfig := filepath.Join(l.dir, "node.kubeconfig")
	l.config = "rotateCertificates: true\n"
	l.start("--kubeconfig", kubeconfig, "--bootstrap-kubeconfig", l.bootstrap())
	l.apply(pod("keeps", forever))
	before := l.ready(1, "")["keeps"]
	current := filepath.Join(l.dir, "pki", "kubelet-client-current.pem")
	first, err := os.ReadFile(current)
	l.must(err)
	l.until("the certificate is renewed", func() error {
		now, err := os.ReadFile(current)
		if err == nil && string(now) == string(first) {
			err = errors.New("it is the first one")
		}
		return err
	})
	l.must(l.cp.Signal("kube-controller-manager", syscall.SIGSTOP))
	l.until("it has expired", func() error {
		since := time.Now().Add(-10 * time.Second)
		calls, err := l.cp.Calls(since)
		if err == nil && len(calls) > 0 {
			err = fmt.Errorf("%d calls", len(calls))
		}
		return err
	})
	if got := l.ofAgent("keeps"); !isReady(got) {
		t.Errorf("meanwhile: %+v", got.Status)
	}
	l.must(l.cp.Signal("kube-controller-manager", syscall.SIGCONT))
	l.until("the node is ready again", func() error { return l.conditionIs(v1.NodeReady, v1.ConditionTrue) })
	after := l.ready(1, "")["keeps"]
	if after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("before %+v, after %+v", before.Status, after.Status)
	}
}

func (l *cluster) killAPI() error {
	l.cp.Kill("kube-apiserver")
	return nil
}

func (l *cluster) startAPI() error { return l.cp.StartAPIServer(l.t.Context()) }

// restarts says why the API does not say that a pod's container has begun
// again as often as that.
func (l *cluster) restarts(name string, atLeast int32) error {
	var p v1.Pod
	if err := l.get("/api/v1/namespaces/default/pods/"+name, &p); err != nil {
		return err
	}
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount < atLeast {
		return fmt.Errorf("want %d restarts: %+v", atLeast, p.Status.ContainerStatuses)
	}
	return nil
}

// ofAgent is a pod as the agent itself has it.
func (l *cluster) ofAgent(name string) *v1.Pod {
	l.t.Helper()
	var p v1.Pod
	l.until("the agent shows "+name, func() error {
		out, err := exec.Command(program(l.t, "agent"), "get", "pods", name, "-n", "default", "-o", "json", "--root-dir", l.root()).Output()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &p); err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("it says %+v", p.Status)
		}
		return nil
	})
	return &p
}

// A watcher sees to it that a count in the API only grows.
type watcher struct {
	end  chan struct{}
	done chan error
}

func (l *cluster) watchRestarts(name string) *watcher {
	w := &watcher{end: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		var most int32
		for {
			var p v1.Pod
			if err := l.get("/api/v1/namespaces/default/pods/"+name, &p); err == nil && len(p.Status.ContainerStatuses) > 0 {
				now := p.Status.ContainerStatuses[0].RestartCount
				if now < most {
					w.done <- fmt.Errorf("%s had begun again %d times, then %d", name, most, now)
					return
				}
				most = now
			}
			select {
			case <-w.end:
				w.done <- nil
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return w
}

func (w *watcher) stop(t *testing.T) {
	t.Helper()
	close(w.end)
	if err := <-w.done; err != nil {
		t.Error(err)
	}
}
