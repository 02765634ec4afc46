package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/systemdtest"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/kubeapi"
)

// A person at a node of a cluster has all that there is without one, whether
// the API server is there or not, and so has who asks the node for metrics and
// health, and systemd.
func TestPersonAtANodeOfACluster(t *testing.T) {
	t.Parallel()
	root, _ := cgroupRoot(t)
	l := newClusterLab(t)
	l.inCgroups(root)
	readOnly, health := testprogram.Port(t), testprogram.Port(t)
	l.configure(fmt.Sprintf("readOnlyPort: %d\n", readOnly))
	l.reconfigure("healthzPort: 0", fmt.Sprintf("healthzPort: %d", health))
	systemd := systemdtest.New(t)
	l.env = append(l.env, "NOTIFY_SOCKET="+systemd.Path, "WATCHDOG_USEC=1100000")
	l.api.Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sec"}, Data: map[string][]byte{"key": []byte("hidden")}})
	l.api.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{"given": "by-the-api"}}})
	l.write("static.yaml", box("static", "sleep, forever"))
	l.start()
	for heard := map[string]bool{}; !heard["READY=1"] || !heard["WATCHDOG=1"]; {
		heard[systemd.Next()] = true
	}
	ends := bound("ends")
	ends.Spec.RestartPolicy, ends.Spec.Containers[0].Args = v1.RestartPolicyNever, []string{"out", "over", "exit", "3"}
	l.api.Create(bound("a"))
	l.api.Create(ends)
	l.running("a")
	l.eventually("the pod has failed", func() error {
		if p, _ := l.api.Get(&v1.Pod{}, "default", "ends").(*v1.Pod); p == nil || p.Status.Phase != v1.PodFailed {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})

	fit := filepath.Join(filepath.Dir(l.manifests), "fit.yaml")
	l.must(os.WriteFile(fit, []byte(box("other", "sleep, forever")), 0o600))
	asks := func(when string) {
		l.t.Helper()
		for _, tc := range []struct{ args, want string }{
			{"get pods", `(?m)^default +a +1/1 +Running`},
			{"get pods", `(?m)^default +static-lab +1/1 +Running`},
			{"get pods", `(?m)^default +ends +0/1 +Error`},
			{"get pods -o wide", `lab`},
			{"get pods a -o json", `"phase": "Running"`},
			{"get pods ends -o yaml", `exitCode: 3`},
			{"get pods -o name", `pod/static-lab`},
			{"describe pod a", `(?s)Name: +a\n.*Running`},
			{"why a", `^default/a runs, and is as it should be`},
			{"why ends", `exit code 3`},
			{"why static-lab", `^default/static-lab runs, and is as it should be`},
			{"why node", `node lab`},
			{"logs a", `ready`},
			{"logs ends", `over`},
			{"exec a -- /testbox out hello", `^hello\n$`},
			{"top pods", `(?m)^default +a +`},
			{"top node", `(?m)^lab +`},
			{"images", regexp.QuoteMeta(sampleimage.Testbox)},
			{"fit -f " + fit, `(?m)^fits$`},
		} {
			if strings.HasPrefix(tc.args, "logs ") { // a container is ready before its program has written anything
				l.until(tc.args+" has "+tc.want, func(map[string]*v1.Pod) bool { return strings.Contains(l.ask(strings.Fields(tc.args)...), tc.want) })
				continue
			}
			if got := l.ask(strings.Fields(tc.args)...); !regexp.MustCompile(tc.want).MatchString(got) {
				t.Errorf("%s: agent %s: want %q in\n%s", when, tc.args, tc.want, got)
			}
		}
	}
	l.untilReady("a", "static")
	asks("in the cluster")
	l.metricsOfContainers(readOnly)
	for url, want := range map[string]int{
		fmt.Sprintf("http://127.0.0.1:%d/healthz", health): 200, fmt.Sprintf("http://127.0.0.1:%d/metrics", health): 404,
		fmt.Sprintf("http://127.0.0.1:%d/healthz/syncloop", readOnly): 200, fmt.Sprintf("http://127.0.0.1:%d/healthz/ping", readOnly): 200,
		fmt.Sprintf("http://127.0.0.1:%d/configz", readOnly): 404, fmt.Sprintf("http://127.0.0.1:%d/logs/", readOnly): 404,
	} {
		if code, body := l.fetch(url); code != want {
			t.Errorf("%s = %d %.200s, want %d", url, code, body, want)
		}
	}

	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/flagz", "", "hostname-override=lab"},
		{"PUT", "/debug/flags/v", "5", "set klog.logging.verbosity to 5"},
		{"GET", "/debug/flags/v", "", "5"},
		{"GET", "/configz", "", `"kind":"KubeletConfiguration"`},
		{"GET", "/healthz?verbose", "", "[+]device-plugin ok"},
	} {
		if code, body := l.askMain(tc.method, tc.path, tc.body); code != http.StatusOK || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s = %d %.300s, want %q", tc.method, tc.path, code, body, tc.want)
		}
	}

	before := ids(l.containers())
	l.api.Stop()
	l.kill()
	l.start()
	l.untilReady("a", "static")
	asks("without the API server, after a restart")
	if after := ids(l.containers()); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("containers before the restart %v, after it %v", before, after)
	}
	l.api.Start()
	l.remove("static.yaml")
	for _, name := range []string{"a", "ends"} {
		l.api.Delete(kubeapi.Pods, "default", name)
	}
	l.untilGone("a", "ends", "static")
}

// metricsOfContainers looks for what dashboards ask of /metrics/cadvisor, with
// the labels that they ask by.
func (l *clusterLab) metricsOfContainers(port int) {
	l.t.Helper()
	l.eventually("metrics of containers", func() error {
		code, body := l.fetch(fmt.Sprintf("http://127.0.0.1:%d/metrics/cadvisor", port))
		if code != http.StatusOK {
			return fmt.Errorf("%d %.200s", code, body)
		}
		const who = `container="main",([a-z]+="[^"]*",)?id="/[^"]*/[0-9a-f]{64}",image="[^"]*testbox[^"]*",([a-z]+="[^"]*",)?name="[0-9a-f]{64}",namespace="default",pod="a"`
		sandbox := `container="",id="/[^"]*/[0-9a-f]{64}",image="[^"]+",([a-z]+="[^"]*",)?name="[0-9a-f]{64}",namespace="default",pod="a"`
		const pod = `container="",([a-z]+="[^"]*",)?id="/[^"]+",image="",name="",namespace="default",pod="a"`
		if containerdtest.Local() {
			// It has no process, and so no cgroup: its network is the pod's.
			sandbox = `container="",id="/[^"]+",image="",([a-z]+="[^"]*",)?name="",namespace="default",pod="a"`
		}
		for _, want := range []string{
			`container_cpu_usage_seconds_total\{` + who, `container_memory_working_set_bytes\{` + who, `container_memory_rss\{` + who,
			`container_memory_cache\{` + who, `container_start_time_seconds\{` + who, `container_last_seen\{` + who,
			`container_oom_events_total\{` + who, `container_spec_cpu_shares\{` + who, `container_spec_cpu_period\{` + who,
			`container_spec_memory_limit_bytes\{` + who, `container_fs_usage_bytes\{` + who, `container_processes\{` + who + `\} 1`,
			`container_cpu_usage_seconds_total\{` + pod, `container_memory_working_set_bytes\{` + pod,
			`container_network_receive_bytes_total\{` + sandbox, `container_network_transmit_packets_total\{` + sandbox,
			`container_memory_working_set_bytes\{` + sandbox, `container_memory_working_set_bytes\{container="",id="/",image=""`,
			`machine_cpu_cores\{`, `machine_memory_bytes\{`, `container_scrape_error 0`,
		} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(body) {
				return fmt.Errorf("no %s in\n%s", want, body)
			}
		}
		return nil
	})
}

// fetch reads a URL.
func (l *clusterLab) fetch(url string) (int, string) {
	l.t.Helper()
	res, err := http.Get(url)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	l.must(err)
	return res.StatusCode, string(b)
}

// askMain asks the node's HTTPS port as somebody who may do all.
func (l *clusterLab) askMain(method, path, body string) (int, string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, fmt.Sprintf("https://127.0.0.1:%d%s", l.port, path), strings.NewReader(body))
	l.must(err)
	req.Header.Set("Authorization", "Bearer good")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // self-signed
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	l.must(err)
	return res.StatusCode, string(b)
}
