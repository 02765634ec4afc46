package network_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/networktest"
)

// rig is a machine in memory, but for its disk.
type rig struct {
	*network.Network
	t      *testing.T
	dir    string
	boot   int
	plugin *networktest.Plugin
	spaces *networktest.Namespaces
	config func(*network.Config)
	crash  func() // ends Run
}

// inRig runs f in a bubble, with a Network that runs, and looks after what f
// left.
func inRig(t *testing.T, config func(*network.Config), f func(t *testing.T, r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, dir: dir, plugin: &networktest.Plugin{}, spaces: &networktest.Namespaces{}, config: config}
		r.start()
		f(t, r)
		r.crash()
		if err := r.plugin.Err(); err != nil {
			t.Error(err)
		}
	})
}

// start starts the agent.
func (r *rig) start() {
	r.t.Helper()
	cfg := network.Config{
		Plugins: []network.Plugin{r.plugin}, StateDir: r.dir, NetnsDir: "/netns", BootID: fmt.Sprint("boot", r.boot), Namespaces: r.spaces,
	}
	if r.config != nil {
		r.config(&cfg)
	}
	n, err := network.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Network, r.crash = n, testrun.Start(r.t, n.Run)
	synctest.Wait()
}

// restart has another agent come.
func (r *rig) restart() {
	r.crash()
	r.start()
}

// reboot has another kernel come.
func (r *rig) reboot() {
	r.crash()
	r.spaces.Reboot()
	r.boot++
	r.start()
}

// clean fails unless nothing is left of anything.
func (r *rig) clean() {
	r.t.Helper()
	synctest.Wait()
	if l := r.List(); len(l) > 0 {
		r.t.Errorf("attachments are left: %+v", l)
	}
	if left := r.spaces.Paths(); len(left) > 0 {
		r.t.Errorf("namespaces are left: %q", left)
	}
	if left := r.plugin.Given(); len(left) > 0 {
		r.t.Errorf("addresses are left: %v", left)
	}
	if left := filesIn(r.t, r.dir); len(left) > 0 {
		r.t.Errorf("files are left: %q", left)
	}
}

// filesIn lists the files of a state directory, but for its lock.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(path) != "lock" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

func (r *rig) state(id string) network.State {
	for _, i := range r.List() {
		if i.ID == id {
			return i.State
		}
	}
	return 99
}

func pod(id string) network.Attachment {
	return network.Attachment{ID: id, Namespace: "default", Name: "web", UID: "u-" + id}
}

func (r *rig) attach(id string) network.Result {
	r.t.Helper()
	res, err := r.Attach(r.t.Context(), pod(id))
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) detach(id string) {
	r.t.Helper()
	if err := r.Detach(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) calls(want ...string) {
	r.t.Helper()
	synctest.Wait()
	got := slices.DeleteFunc(r.plugin.Calls(), func(c string) bool { return strings.HasPrefix(c, "Plan ") || c == "Recovered " })
	if !slices.Equal(got, want) {
		r.t.Errorf("calls %q, want %q", got, want)
	}
}

func wantCode(t *testing.T, err error, code network.Code, words ...string) {
	t.Helper()
	if network.CodeOf(err) != code {
		t.Errorf("%v: %v, want %v", network.CodeOf(err), err, code)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestAttachAndDetach(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable ", durable), func(t *testing.T) {
			inRig(t, func(c *network.Config) { c.Plugins[0].(*networktest.Plugin).Lasting = durable }, func(t *testing.T, r *rig) {
				if err := r.Status(); err != nil {
					t.Errorf("status: %v", err)
				}
				res := r.attach("a")
				if res.Netns != r.SpacePath("a") || len(res.IPs) != 1 || string(res.Extra) != `{"by":"networktest"}` {
					t.Errorf("%+v", res)
				}
				if !slices.Equal(r.spaces.Paths(), []string{res.Netns}) {
					t.Errorf("namespaces %q", r.spaces.Paths())
				}
				if got, ok := r.Get("a"); !ok || !slices.Equal(got.IPs, res.IPs) {
					t.Errorf("get: %+v, %v", got, ok)
				}
				if l := r.List(); len(l) != 1 || l[0].ID != "a" || l[0].State != network.Attached || l[0].Plugin != "test" || l[0].Created.IsZero() {
					t.Errorf("list: %+v", l)
				}
				r.detach("a")
				if _, ok := r.Get("a"); ok {
					t.Error("it is still attached")
				}
				r.detach("a")
				r.detach("unknown")
				r.calls("SetUp a", "TearDown a")
				r.clean()
			})
		})
	}
}

func TestAttachIsIdempotent(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		a := pod("a")
		a.Annotations = map[string]string{"k": "v"}
		a.Ports = []network.Port{{Protocol: "tcp", HostPort: 80, ContainerPort: 8080}, {Protocol: "udp", ContainerPort: 53}}
		var wg sync.WaitGroup
		results := make([]network.Result, 5)
		for i := range results {
			wg.Go(func() {
				var err error
				if results[i], err = r.Attach(t.Context(), a); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		a.Annotations["k"] = "other" // the caller's own
		for _, res := range results {
			if !slices.Equal(res.IPs, results[0].IPs) {
				t.Errorf("%v and %v", res.IPs, results[0].IPs)
			}
		}
		_, err := r.Attach(t.Context(), a)
		wantCode(t, err, network.FailedPrecondition, "other values")
		a.Annotations["k"] = "v"
		a.Ports = a.Ports[:1] // the other one has no host port
		if _, err := r.Attach(t.Context(), a); err != nil {
			t.Error(err)
		}
		r.restart()
		if res, err := r.Attach(t.Context(), a); err != nil || !slices.Equal(res.IPs, results[0].IPs) {
			t.Errorf("after a restart: %v, %v", res, err)
		}
		r.calls("SetUp a")
		r.detach("a")
		r.calls("TearDown a")
		r.clean()
	})
}

// block has calls of a name wait until it is closed, without regard to their
// context; nil blocks none.
func (r *rig) block(call string, id string) (release func()) {
	ch := make(chan struct{})
	r.plugin.SetHook(func(_ context.Context, c, i string) error {
		if c == call && (id == "" || i == id) {
			<-ch
		}
		return nil
	})
	return sync.OnceFunc(func() { close(ch) })
}

func TestDetachDuringAttach(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		release := r.block("SetUp", "")
		var attach, detach atomic.Pointer[error]
		go func() { _, err := r.Attach(context.Background(), pod("a")); attach.Store(&err) }()
		synctest.Wait()
		for range 2 {
			go func() { err := r.Detach(context.Background(), "a"); detach.Store(&err) }()
		}
		synctest.Wait()
		var again atomic.Bool
		go func() {
			if _, err := r.Attach(context.Background(), pod("a")); err != nil {
				t.Error(err)
			}
			again.Store(true)
		}()
		time.Sleep(time.Second)
		if attach.Load() != nil || detach.Load() != nil || again.Load() {
			t.Error("somebody did not wait")
		}
		release()
		synctest.Wait()
		if *attach.Load() != nil || *detach.Load() != nil || !again.Load() {
			t.Errorf("attach: %v, detach: %v", *attach.Load(), *detach.Load())
		}
		r.calls("SetUp a", "TearDown a", "SetUp a")
		r.detach("a")
		r.clean()
	})
}

func TestTheCallersCancelEndsItsWaitAlone(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		release := r.block("SetUp", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Attach(ctx, pod("a"))
		wantCode(t, err, network.DeadlineExceeded, "attach a")
		if s := r.state("a"); s != network.Planned {
			t.Errorf("it is %v", s)
		}
		release()
		synctest.Wait()
		if _, ok := r.Get("a"); !ok {
			t.Error("it was not attached")
		}
		r.calls("SetUp a")
		r.detach("a")
		r.clean()
	})
}

// What failed is taken back at once; what cannot be is tried again, less and
// less often, and at once when somebody asks.
func TestFailuresAreTakenBack(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		full := network.Errorf(network.ResourceExhausted, "no free address")
		stuck := errors.New("device is busy")
		fail := func(_ context.Context, call, _ string) error {
			switch call {
			case "SetUp":
				return full
			case "TearDown":
				return stuck
			}
			return nil
		}
		r.plugin.SetHook(fail)
		_, err := r.Attach(t.Context(), pod("a"))
		wantCode(t, err, network.ResourceExhausted, "attach a", "plugin test", "no free address")
		r.calls("SetUp a", "TearDown a")
		var at []time.Duration
		synctest.Wait()
		begin := time.Now()
		r.plugin.SetHook(func(ctx context.Context, call, id string) error {
			at = append(at, time.Since(begin))
			return fail(ctx, call, id)
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		var pauses []string
		for i, d := range at {
			last := time.Duration(0)
			if i > 0 {
				last = at[i-1]
			}
			pauses = append(pauses, (d - last).Round(time.Second).String())
		}
		if got := strings.Join(pauses[:10], " "); got != "1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 5m0s" {
			t.Errorf("pauses %s", got)
		}
		if l := r.List(); len(l) != 1 || l[0].State != network.Detaching {
			t.Errorf("%+v", l)
		}
		at = nil
		begin = time.Now()
		wantCode(t, r.Detach(t.Context(), "a"), network.Unknown, "detach a", "plugin test: tear down", "device is busy")
		if len(at) != 1 || at[0] != 0 {
			t.Errorf("detach: calls after %v", at)
		}
		if l := r.List(); !errors.Is(l[0].Err, stuck) {
			t.Errorf("%+v", l)
		}
		if len(r.spaces.Paths()) != 1 {
			t.Error("the namespace is gone, which the plugin may need")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.Attach(ctx, pod("a"))
		wantCode(t, err, network.Unavailable, "still being removed", "device is busy")
		r.plugin.SetHook(nil)
		r.detach("a")
		r.clean()
	})
}

// A plugin that does not return hurts one pod.
func TestACallThatHangs(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		release := r.block("SetUp", "bad")
		var failed atomic.Pointer[error]
		begin := time.Now()
		var took time.Duration
		go func() {
			_, err := r.Attach(context.Background(), pod("bad"))
			took = time.Since(begin)
			failed.Store(&err)
		}()
		synctest.Wait()
		for i := range 30 {
			r.attach(fmt.Sprint("good", i))
			r.detach(fmt.Sprint("good", i))
		}
		if time.Since(begin) > 0 {
			t.Errorf("the others took %v", time.Since(begin))
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		wantCode(t, *failed.Load(), network.DeadlineExceeded, "plugin test: set up")
		if took != 2*time.Minute+5*time.Second {
			t.Errorf("it took %v", took)
		}
		wantCode(t, r.Detach(t.Context(), "bad"), network.Unavailable, "has not returned")
		r.plugin.Calls()
		time.Sleep(time.Hour)
		r.calls() // no TearDown beside it
		release()
		r.calls("TearDown bad")
		r.clean()
	})
}

func TestManyCallsThatHang(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		release := r.block("SetUp", "")
		for i := range 64 {
			go func() { _, _ = r.Attach(context.Background(), pod(fmt.Sprint("bad", i))) }()
		}
		time.Sleep(time.Hour) // 8 at a time
		_, err := r.Attach(t.Context(), pod("more"))
		wantCode(t, err, network.Unavailable, "64 plugin calls have not returned")
		release()
		time.Sleep(time.Minute)
		r.attach("more")
		r.detach("more")
		r.clean()
	})
}

func TestTearDownThatHangs(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		release := r.block("TearDown", "")
		begin := time.Now()
		wantCode(t, r.Detach(t.Context(), "a"), network.DeadlineExceeded, "plugin test: tear down")
		if took := time.Since(begin); took != 65*time.Second {
			t.Errorf("it took %v", took)
		}
		wantCode(t, r.Detach(t.Context(), "a"), network.Unavailable, "has not returned")
		time.Sleep(time.Hour)
		r.calls("SetUp a", "TearDown a")
		release()
		time.Sleep(time.Second) // asked for meanwhile
		r.calls("TearDown a")
		r.clean()
	})
}

func TestForget(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		wantCode(t, r.Forget("a"), network.FailedPrecondition, "attached")
		if err := r.Forget("unknown"); err != nil {
			t.Error(err)
		}
		r.plugin.SetHook(func(_ context.Context, call, _ string) error {
			if call == "TearDown" {
				return errors.New("plugin binary is gone")
			}
			return nil
		})
		wantCode(t, r.Detach(t.Context(), "a"), network.Unknown)
		if err := r.Forget("a"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		r.calls("SetUp a", "TearDown a")
		if len(r.plugin.Given()) != 1 {
			t.Error("the plugin took it back")
		}
		r.plugin.SetHook(nil)
		r.restart()
		r.attach("a")
		r.detach("a")
		r.clean()
	})
}

// Even a call that hangs can be given up; when it returns, nothing comes of it.
func TestForgetACallThatHangs(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		release := r.block("TearDown", "")
		wantCode(t, r.Detach(t.Context(), "a"), network.DeadlineExceeded)
		if err := r.Forget("a"); err != nil {
			t.Error(err)
		}
		if l := r.List(); len(l) > 0 {
			t.Errorf("%+v", l)
		}
		release()
		time.Sleep(time.Hour)
		r.calls("SetUp a", "TearDown a")
		r.clean()
	})
}

func TestSoManyAtATime(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		var now, most atomic.Int32
		r.plugin.SetHook(func(_ context.Context, call, _ string) error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := r.Attach(context.Background(), pod(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				if err := r.Detach(context.Background(), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 8 {
			t.Errorf("%d at a time", most.Load())
		}
		r.clean()
	})
}

func TestStatus(t *testing.T) {
	var broken atomic.Pointer[error]
	var asked atomic.Int32
	inRig(t, func(c *network.Config) {
		c.Plugins[0].(*networktest.Plugin).StatusIs = func() error {
			asked.Add(1)
			if err := broken.Load(); err != nil {
				return *err
			}
			return nil
		}
	}, func(t *testing.T, r *rig) {
		if err := r.Status(); err != nil {
			t.Error(err)
		}
		none := errors.New("no valid network configuration in /etc/cni/net.d")
		broken.Store(&none)
		before := asked.Load()
		for range 10 {
			if err := r.Status(); err != nil {
				t.Errorf("it changed unasked: %v", err)
			}
		}
		if asked.Load() != before {
			t.Error("the plugin was asked")
		}
		r.plugin.SetHook(func(_ context.Context, call, _ string) error {
			if call == "SetUp" {
				return none
			}
			return nil
		})
		_, err := r.Attach(t.Context(), pod("a"))
		wantCode(t, err, network.Unknown)
		synctest.Wait()
		wantCode(t, r.Status(), network.Unavailable, "no valid network configuration in")
		r.plugin.Calls()
		_, err = r.Attach(t.Context(), pod("a"))
		wantCode(t, err, network.Unavailable, "no valid network configuration in")
		if c := r.plugin.Calls(); len(c) > 0 {
			t.Errorf("the plugin was called: %q", c)
		}
		broken.Store(nil)
		r.plugin.SetHook(nil)
		r.attach("a") // which asks again
		if err := r.Status(); err != nil {
			t.Error(err)
		}
		r.detach("a")
		r.clean()
	})
}

func TestAStatusThatHangs(t *testing.T) {
	hang := make(chan struct{})
	inRig(t, func(c *network.Config) {
		p := c.Plugins[0].(*networktest.Plugin)
		hang = make(chan struct{})
		h := hang
		p.StatusIs = func() error { <-h; return nil }
	}, func(t *testing.T, r *rig) {
		for range 5 {
			_, err := r.Attach(t.Context(), pod("a"))
			wantCode(t, err, network.Unavailable, "deadline exceeded")
		}
		close(hang)
		r.attach("a")
		r.detach("a")
		r.clean()
	})
}

func TestSomethingIsAtThePath(t *testing.T) {
	for _, kind := range []network.SpaceKind{network.SpaceForeign, network.SpaceNamed, network.SpaceEmpty} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			there := network.Space{Kind: kind, ID: 4711}
			r.spaces.Put(r.SpacePath("a"), there)
			_, err := r.Attach(t.Context(), pod("a"))
			wantCode(t, err, network.FailedPrecondition, r.SpacePath("a"))
			synctest.Wait()
			if at, _ := r.spaces.Look(r.SpacePath("a")); at != there {
				t.Errorf("now there is %+v", at)
			}
			r.calls()
			r.spaces.Put(r.SpacePath("a"), network.Space{})

			// It comes at the last moment.
			r.spaces.SetHook(func(call, path string) error {
				if call == "Make" {
					r.spaces.Put(path, there)
				}
				return nil
			})
			_, err = r.Attach(t.Context(), pod("a"))
			wantCode(t, err, network.FailedPrecondition, r.SpacePath("a"))
			r.calls("TearDown a")
			if at, _ := r.spaces.Look(r.SpacePath("a")); at != there {
				t.Errorf("now there is %+v", at)
			}
			r.spaces.Put(r.SpacePath("a"), network.Space{})
			r.spaces.SetHook(nil)
			r.clean()
		})
	}
}

// A namespace that somebody unmounted, or mounted over, is not needed to detach.
func TestTheNamespaceIsReplaced(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		there := network.Space{Kind: network.SpaceNamed, ID: 4711}
		r.spaces.Put(r.SpacePath("a"), there)
		r.detach("a")
		if at, _ := r.spaces.Look(r.SpacePath("a")); at != there {
			t.Errorf("now there is %+v", at)
		}
		r.spaces.Put(r.SpacePath("a"), network.Space{})
		r.attach("a")
		r.spaces.Put(r.SpacePath("a"), network.Space{})
		r.detach("a")
		r.clean()
	})
}

func TestResultsThatLie(t *testing.T) {
	for name, lie := range map[string]func(r network.Result) network.Result{
		"no address":         func(r network.Result) network.Result { r.IPs = nil; return r },
		"an invalid address": func(r network.Result) network.Result { r.IPs = []netip.Addr{{}}; return r },
		"an address with zone": func(r network.Result) network.Result {
			r.IPs = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")}
			return r
		},
		"many addresses": func(r network.Result) network.Result { r.IPs = slices.Repeat(r.IPs, 65); return r },
		"a large extra": func(r network.Result) network.Result {
			r.Extra = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
			return r
		},
		"an extra without JSON": func(r network.Result) network.Result { r.Extra = []byte("{"); return r },
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(t *testing.T, r *rig) {
				r.plugin.Result = lie
				_, err := r.Attach(t.Context(), pod("a"))
				wantCode(t, err, network.FailedPrecondition, "plugin test: set up: result")
				r.calls("SetUp a", "TearDown a")
				r.clean()
			})
		})
	}
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.plugin.Result = func(res network.Result) network.Result {
			res.Netns = "/etc/passwd"
			res.Warnings = slices.Repeat([]string{strings.Repeat("ä", 9999)}, 9999)
			return res
		}
		res := r.attach("a")
		if res.Netns != r.SpacePath("a") || len(res.Warnings) != 64 || len(res.Warnings[0]) != 1024 {
			t.Errorf("%.200v", res)
		}
		r.detach("a")
		r.clean()
	})
}

func TestPluginsThatPanic(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		for _, call := range []string{"Plan", "SetUp", "TearDown"} {
			r.plugin.SetHook(func(_ context.Context, c, _ string) error {
				if c == call {
					panic("boom")
				}
				return nil
			})
			_, err := r.Attach(t.Context(), pod("a"))
			if call == "TearDown" {
				err = r.Detach(t.Context(), "a")
			}
			wantCode(t, err, network.Unknown, "panic: boom")
			r.plugin.SetHook(nil)
			r.detach("a")
			r.clean()
		}
	})
}

// A plan that came too late is taken back; one that failed made nothing.
func TestPlansThatHang(t *testing.T) {
	for _, late := range []error{nil, errors.New("late")} {
		inRig(t, nil, func(t *testing.T, r *rig) {
			hang := make(chan struct{})
			r.plugin.SetHook(func(_ context.Context, call, _ string) error {
				if call == "Plan" {
					<-hang
					return late
				}
				return nil
			})
			_, err := r.Attach(t.Context(), pod("a"))
			wantCode(t, err, network.DeadlineExceeded, "plugin test: plan")
			close(hang)
			if late == nil {
				r.calls("TearDown a")
			} else {
				r.calls()
			}
			r.clean()
		})
	}
}

func TestMethodsWaitForRun(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, err := network.New(network.Config{
			Plugins: []network.Plugin{&networktest.Plugin{}}, StateDir: dir, NetnsDir: "/netns", BootID: "b", Namespaces: &networktest.Namespaces{},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.Attach(ctx, pod("a"))
		wantCode(t, err, network.Unavailable, "records are not read yet")
		wantCode(t, n.Detach(ctx, "a"), network.Unavailable, "records are not read yet")
		wantCode(t, n.Status(), network.Unavailable)
		if _, ok := n.Get("a"); ok {
			t.Error("it is there")
		}
		go func() {
			_, err := n.Attach(context.Background(), pod("a"))
			if err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		synctest.Wait()
		if _, ok := n.Get("a"); !ok {
			t.Error("it was not attached")
		}
		if err := n.Run(ctx); err == nil {
			t.Error("Run was called twice")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, err = n.Attach(t.Context(), pod("b"))
		wantCode(t, err, network.Unavailable, "stopped")
		wantCode(t, n.Detach(t.Context(), "a"), network.Unavailable, "stopped")
		wantCode(t, n.Status(), network.Unavailable, "stopped")
	})
}

// Run ends soon, whatever plugins do.
func TestRunEnds(t *testing.T) {
	inRig(t, nil, func(t *testing.T, r *rig) {
		r.attach("a")
		release := r.block("SetUp", "b")
		go func() {
			_, err := r.Attach(context.Background(), pod("b"))
			wantCode(t, err, network.DeadlineExceeded)
		}()
		synctest.Wait()
		begin := time.Now()
		r.crash()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		release()
		synctest.Wait()
		r.plugin.SetHook(nil)
		r.start()
		r.calls("SetUp a", "SetUp b", "TearDown b")
		if _, ok := r.Get("a"); !ok {
			t.Error("a is not attached")
		}
		r.detach("a")
		r.clean()
	})
}
