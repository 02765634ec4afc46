package localapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/localapi/store"
)

var kills = flag.Int("kills", 8, "how often TestKilled kills the server")

// serveDir names the directory that this process is to serve, in place of running
// tests.
const serveDir = "LOCALAPI_TEST_SERVE"

func TestMain(m *testing.M) {
	dir := os.Getenv(serveDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	srv, err := localapi.New(localapi.Config{Node: "node-1", Store: store.NewDir(dir)})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { panic(srv.Run(context.Background())) }()
	panic((&http.Server{Handler: srv.Handler(localapi.Root), ReadHeaderTimeout: time.Minute}).Serve(l))
}

// served runs a process that serves a directory.
func served(t *testing.T, dir string) (a *api, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), serveDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	a = &api{t: t, url: "http://" + strings.TrimSpace(addr)}
	for end := time.Now().Add(2 * time.Minute); ; {
		if code, _ := a.do("GET", "/readyz", "", ""); code == http.StatusOK {
			break
		} else if time.Now().After(end) {
			t.Fatal("the server is not ready")
		}
	}
	return a, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

// attempt is what a client has asked of an object last, and what was acknowledged.
type attempt struct{ asked, acknowledged int }

// storm applies to objects of its own, and deletes some, until the server or its disk is
// gone.
func storm(url, prefix string, from int, done map[string]*attempt) {
	client := &http.Client{Timeout: 10 * time.Second}
	for i := from; ; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i%5)
		if done[name] == nil {
			done[name] = &attempt{}
		}
		a := done[name]
		a.asked = i
		method, path, body := http.MethodPatch, url+configMaps+"/"+name+"?fieldManager=storm&force=true",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":"%d","pad":%q}}`, name, i, strings.Repeat("x", i%3*20_000))
		if i%7 == 0 {
			a.asked, method, body = -i, http.MethodDelete, ""
		}
		req, _ := http.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
		if body != "" {
			req.Header.Set("Content-Type", "application/apply-patch+yaml")
		}
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 400 && resp.StatusCode != http.StatusNotFound { // a disk without power
			return
		}
		if resp.StatusCode < 300 || method == http.MethodDelete && resp.StatusCode == http.StatusNotFound {
			a.acknowledged = a.asked
		}
	}
}

// check compares what an object has after a failure with what may be; "" is no object.
func (w *attempt) check(t *testing.T, name, have string) {
	t.Helper()
	is := func(n int) bool { return n > 0 && have == fmt.Sprint(n) || n <= 0 && have == "" }
	if !is(w.asked) && !is(w.acknowledged) {
		t.Errorf("%s is %q; %d was acknowledged, and %d asked last", name, have, w.acknowledged, w.asked)
	}
	w.acknowledged = w.asked // whichever it was
	if !is(w.asked) {
		w.acknowledged = 0
		_, _ = fmt.Sscan(have, &w.acknowledged)
	}
}

// A server that is killed under a storm loses nothing that it has acknowledged, and has
// nothing half-written; a watch goes on without a gap, or is told to begin anew.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	const clients = 4
	var did [clients]map[string]*attempt
	for i := range did {
		did[i] = map[string]*attempt{}
	}
	revision, objects := "", 0
	for round := range *kills {
		a, kill := served(t, dir)
		if revision != "" {
			a.refused("GET", configMaps+"?watch=1&resourceVersion="+revision, "", "", 410, metav1.StatusReasonExpired, "")
		}
		var wg sync.WaitGroup
		for i := range did {
			wg.Go(func() { storm(a.url, fmt.Sprint("c", i), round*100_000+1, did[i]) })
		}
		time.Sleep(time.Duration(50+rand.IntN(250)) * time.Millisecond)
		revision = must[v1.ConfigMapList](a, "GET", configMaps, "", nil).ResourceVersion
		kill()
		wg.Wait()

		docs, err := store.NewDir(dir).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if d.Err != nil || !json.Valid(d.Object) {
				t.Errorf("round %d: %s: %v", round, d.Name, d.Err)
			}
		}
		b, stop := served(t, dir)
		have := map[string]string{}
		for _, c := range must[v1.ConfigMapList](b, "GET", configMaps, "", nil).Items {
			have[c.Name] = c.Data["k"]
		}
		stop()
		for _, m := range did {
			for name, w := range m {
				w.check(t, fmt.Sprintf("round %d: %s", round, name), have[name])
				objects++
			}
		}
	}
	t.Logf("%d kills, %d objects looked at", *kills, objects)
}
