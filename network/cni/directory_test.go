package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/network"
	"golang.org/x/sys/unix"
)

// names are the files that the log says are skipped.
func (r *rig) skipped() string {
	var s []string
	for _, e := range r.logs.FilterMessage("skipped network configuration").TakeAll() {
		s = append(s, fmt.Sprint(e.ContextMap()["file"]))
	}
	return strings.Join(s, " ")
}

// inUse loads and says which file is used, and of which version.
func (r *rig) inUse() string {
	r.t.Helper()
	if _, ok := r.p.load(r.t.Context()); !ok {
		r.t.Fatal("not loaded")
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if r.p.list == nil {
		return ""
	}
	return r.p.list.file + " " + r.p.list.version
}

func wantUse(t *testing.T, r *rig, want string) {
	t.Helper()
	if got := r.inUse(); got != want {
		t.Errorf("in use is %q, with status %v; want %q", got, r.p.Status(), want)
	}
}

func TestTheFirstValidFileIsUsed(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("05-broken.conflist", `{"name":`)
	r.write("10-good.conflist", oneConf("good", "1.0.0", `{"type":"main"}`))
	r.write("20-other.conflist", oneConf("other", "1.0.0", `{"type":"main"}`))
	r.write("00-readme.txt", "no configuration")
	for range 3 {
		wantUse(t, r, "10-good.conflist 1.0.0")
	}
	if got := r.skipped(); got != "05-broken.conflist" {
		t.Errorf("named %q; want the broken one, once", got)
	}
	old := r.mustUp(pod("old"))
	r.write("05-broken.conflist", oneConf("mended", "0.4.0", `{"type":"main"}`))
	wantUse(t, r, "05-broken.conflist 0.4.0")
	k := r.mustUp(pod("new"))
	r.heard()
	if err := errors.Join(r.down(old), r.down(k)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"good"`, `"mended"`} {
		r.t.Helper()
		if dels := r.heard("DEL"); len(dels) > 0 {
			for j, h := range dels {
				if got := string(request(t, h)["name"]); got != []string{`"good"`, `"mended"`}[j] {
					t.Errorf("DEL %d of %s; want %s", i, got, want)
				}
			}
		}
	}
}

func TestWhatMakesAFileInvalid(t *testing.T) {
	for _, c := range []struct{ file, data, text string }{
		{"10.conflist", oneConf("a/b", "1.0.0", `{"type":"main"}`), `name is "a/b"`},
		{"10.conflist", oneConf("", "1.0.0", `{"type":"main"}`), `name is ""`},
		{"10.conflist", oneConf("..", "1.0.0", `{"type":"main"}`), `name is ".."`},
		{"10.conflist", oneConf(strings.Repeat("n", 111), "1.0.0", `{"type":"main"}`), "at most 110 bytes"},
		{"10.conflist", `{"cniVersion":"1.0.0","plugins":[{"type":"main"}]}`, "no name"},
		{"10.conflist", `{"cniVersion":"1.0.0","name":7,"plugins":[{"type":"main"}]}`, "name"},
		{"10.conflist", oneConf("net", "1.0.0"), "no plugins"},
		{"10.conflist", `{"cniVersion":"1.0.0","name":"net"}`, "no plugins"},
		{"10.conflist", `{"cniVersion":"1.0.0","name":"net","loadOnlyInlinedPlugins":true}`, "loadOnlyInlinedPlugins"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":"absent"}`), "plugin absent is not in"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":"../main"}`), "without directories"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":".."}`), "without directories"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":"plain"}`), "want an executable file"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":"dir"}`), "want an executable file"},
		{"10.conflist", oneConf("net", "1.0.0", `{}`), "type"},
		{"10.conflist", oneConf("net", "1.0.0", `null`), "type"},
		{"10.conflist", oneConf("net", "1.0.0", `[]`), "cannot unmarshal"},
		{"10.conflist", oneConf("net", "2.0.0", `{"type":"main"}`), `cniVersion is "2.0.0"; want one of`},
		{"10.conflist", oneConf("net", "one", `{"type":"main"}`), `cniVersion is "one"`},
		{"10.conflist", oneConf("net", "1.1.0", `{"type":"old"}`), `plugin old supports the versions ["0.3.1" "0.4.0"]; want one of ["1.1.0"]`},
		{"10.conflist", oneConf("net", "1.0.0", strings.Repeat(`{"type":"main"},`, 32)+`{"type":"main"}`), "list has 33 plugins"},
		{"10.conflist", oneConf("net", "1.0.0", `{"type":"main","pad":"`+strings.Repeat("x", maxConf)+`"}`), "file too large"},
		{"10.conflist", "", "the file is empty"},
		{"10.conflist", strings.Repeat("[", 100_000), "file cannot be read, is empty or is not JSON"},
		{"10.conf", `{"cniVersion":"1.0.0","name":"net"}`, "no type"},
		{"10.json", oneConf("net", "1.0.0", `{"type":"main"}`), ".conflist"},
		{"10.conf", `{"cniVersion":"1.0.0","type":"main"}`, "no name"},
		{"10.conf", `[]`, "cannot unmarshal"},
	} {
		r := newRig(t, false)
		r.install("main", "old")
		r.acts("old", map[string]act{"VERSION": {Versions: []string{"0.3.1", "0.4.0", "99.0.0"}}})
		if err := errors.Join(os.WriteFile(filepath.Join(r.bin, "plain"), nil, 0o600), os.Mkdir(filepath.Join(r.bin, "dir"), 0o700)); err != nil {
			t.Fatal(err)
		}
		r.write(c.file, c.data)
		wantUse(t, r, "")
		err := r.p.Status()
		wantCode(t, err, network.Unavailable, "no valid network configuration in "+r.conf+": "+c.file, c.text)
		if len(err.Error()) > 2000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		_, err = r.p.Plan(t.Context(), pod("a"))
		wantCode(t, err, network.Unavailable, c.text)
		file, err := Find(Config{ConfDir: r.conf, BinDirs: []string{r.bin}})
		switch {
		case strings.Contains(c.text, "supports the versions"):
			if err != nil || file != filepath.Join(r.conf, c.file) {
				t.Errorf("Find: %q, %v; want the file, since no plugin is asked", file, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.text):
			t.Errorf("Find: %q, %v; want an error with %q", file, err, c.text)
		}
	}
}

// Other programs leave configurations whose plugins are not installed.
func TestFind(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	cfg := Config{ConfDir: r.conf, BinDirs: []string{r.bin}}
	want := func(want, text string) {
		t.Helper()
		if got, err := Find(cfg); got != want || want == "" && (err == nil || err.Error() != text) || want != "" && err != nil {
			t.Errorf("Find: %q, %v; want %q, %s", got, err, want, text)
		}
	}
	want("", "no valid network configuration in "+r.conf)
	r.write("05-podman.conflist", oneConf("podman", "0.4.0", `{"type":"bridge"}`))
	want("", "no valid network configuration in "+r.conf+": 05-podman.conflist: plugin bridge is not in "+r.bin)
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	want(filepath.Join(r.conf, "10.conflist"), "")
	cfg.ConfDir = "relative"
	want("", `ConfDir is "relative"; want an absolute path`)
}

func TestVersionsOfPluginsAreShared(t *testing.T) {
	for _, c := range []struct {
		conf string
		a, b act // answers to VERSION
		want string
	}{
		{`"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0","7.0.0"]`, act{}, act{}, "1.1.0"},
		{`"cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0"]`, act{Versions: []string{"0.4.0", "1.0.0"}}, act{}, "1.0.0"},
		{`"cniVersions":["0.3.1","0.4.0","1.0.0"]`, act{Versions: []string{"0.4.0", "1.0.0"}}, act{Versions: []string{"0.3.1", "0.4.0"}}, "0.4.0"},
		{`"cniVersions":["1.0.0","1.1.0"]`, act{Versions: []string{"1.0.0"}}, act{Versions: []string{"1.1.0"}}, ""},
		{`"disableCheck":false`, act{Code: 4, Msg: "unknown CNI_COMMAND: VERSION"}, act{Stdout: `{"cniVersion":"0.2.0"}`}, "0.1.0"},
		{`"cniVersion":"0.2.0"`, act{Code: 4, Msg: "unknown CNI_COMMAND: VERSION"}, act{}, ""},
		{`"cniVersion":"1.0.0"`, act{Stdout: "{}"}, act{}, ""},
		{`"cniVersion":"1.0.0"`, act{Exit: 1, Stderr: "exec format error"}, act{}, ""},
	} {
		r := newRig(t, false)
		r.install("a", "b")
		r.acts("a", map[string]act{"VERSION": c.a})
		r.acts("b", map[string]act{"VERSION": c.b})
		r.write("10.conflist", `{"name":"net",`+c.conf+`,"plugins":[{"type":"a"},{"type":"b"},{"type":"a"}]}`)
		want := c.want
		if want != "" {
			want = "10.conflist " + want
		}
		wantUse(t, r, want)
		r.inUse()
		if all := r.heard("VERSION"); len(all) != 2 {
			t.Errorf("%s: VERSION of %q; want each plugin asked once", c.conf, kinds(all))
		}
	}
}

func TestAnotherExecutableIsAskedAgain(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	wantUse(t, r, "10.conflist 1.0.0")
	r.acts("main", map[string]act{"VERSION": {Versions: []string{"0.4.0"}}})
	path := filepath.Join(r.bin, "main")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("new"), 0o700)); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "")
	if all := r.heard("VERSION"); len(all) != 2 {
		t.Errorf("asked %d times", len(all))
	}
}

// An executable that is being written, of a list that is in use.
func TestAPluginThatDoesNotAnswerVersionTakesNothingAway(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	wantUse(t, r, "10.conflist 1.0.0")
	r.acts("main", map[string]act{"VERSION": {Exit: 1}})
	path := filepath.Join(r.bin, "main")
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("half"), 0o700)); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "10.conflist 1.0.0")
	if !r.p.unanswered {
		t.Error("it is not asked again")
	}
	// It is gone.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "")
	wantCode(t, r.p.Status(), network.Unavailable, "plugin main is not in")
}

func TestAFileThatIsBeingWrittenTakesNothingAway(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	whole := oneConf("net", "1.0.0", `{"type":"main"}`)
	next := oneConf("net", "0.4.0", `{"type":"main"}`)
	r.write("10.conflist", whole)
	r.write("20.conflist", oneConf("other", "1.0.0", `{"type":"main"}`))
	wantUse(t, r, "10.conflist 1.0.0")
	for n := range len(next) {
		r.write("10.conflist", next[:n])
		wantUse(t, r, "10.conflist 1.0.0")
		if err := r.p.Status(); err != nil {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	r.write("10.conflist", next)
	wantUse(t, r, "10.conflist 0.4.0")
	path := filepath.Join(r.conf, "10.conflist")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "20.conflist 1.0.0")
	if err := os.RemoveAll(r.conf); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "")
	wantCode(t, r.p.Status(), network.Unavailable, "no valid network configuration in "+r.conf)
}

// What is no file waits for nobody, and links are followed.
func TestHostileFilesOfTheDirectory(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	elsewhere := filepath.Join(t.TempDir(), "real")
	if err := errors.Join(
		unix.Mkfifo(filepath.Join(r.conf, "00.conflist"), 0o600),
		os.Mkdir(filepath.Join(r.conf, "01.conflist"), 0o700),
		os.Symlink("/dev/zero", filepath.Join(r.conf, "02.conflist")),
		os.Symlink("/proc/kmsg", filepath.Join(r.conf, "03.conflist")),
		os.Symlink("loop.conflist", filepath.Join(r.conf, "loop.conflist")),
		os.WriteFile(elsewhere, []byte(oneConf("net", "1.0.0", `{"type":"main"}`)), 0o600),
		os.Symlink(elsewhere, filepath.Join(r.conf, "90.conflist")),
	); err != nil {
		t.Fatal(err)
	}
	wantUse(t, r, "90.conflist 1.0.0")
	if got := r.skipped(); got != "00.conflist 02.conflist 03.conflist" {
		t.Errorf("skipped %q", got)
	}
	for i := range maxFiles {
		r.write(fmt.Sprintf("more-%d.conf", i), "x")
	}
	wantUse(t, r, "90.conflist 1.0.0") // nothing was read, and what is in use stays
}

func TestPluginsInFilesOfTheirOwn(t *testing.T) {
	r := newRig(t, false)
	r.install("main", "own", "later")
	sub := filepath.Join(r.conf, "net")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(name, data string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(sub, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("20.conf", `{"type":"later","big":12345678901234567890}`)
	put("10.conf", `{"type":"own"}`)
	put("30.txt", `{"type":"absent"}`)
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	k := r.mustUp(pod("a"))
	adds := r.heard("ADD")
	if kinds(adds) != "main own later" || string(request(t, adds[2])["big"]) != "12345678901234567890" {
		t.Errorf("ADD of %q", kinds(adds))
	}
	r.write("09.conflist", oneConf("10.conflist", "1.0.0", `{"type":"main"}`)) // the name is a file's
	wantUse(t, r, "09.conflist 1.0.0")
	if err := os.Remove(filepath.Join(r.conf, "09.conflist")); err != nil {
		t.Fatal(err)
	}
	r.write("10.conflist", `{"cniVersion":"1.0.0","name":"net"}`)
	wantUse(t, r, "10.conflist 1.0.0")
	if r.mustUp(pod("b")); kinds(r.heard("ADD")) != "own later" {
		t.Error("a list without plugins of its own")
	}
	put("10.conf", `{"typ`) // while it is written
	wantUse(t, r, "10.conflist 1.0.0")
	r.write("10.conflist", `{"cniVersion":"1.0.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[{"type":"main"}]}`)
	wantUse(t, r, "10.conflist 1.0.0")
	if r.mustUp(pod("c")); kinds(r.heard("ADD")) != "main" {
		t.Error("loadOnlyInlinedPlugins is not honoured")
	}
	if err := os.RemoveAll(sub); err != nil {
		t.Fatal(err)
	}
	if err := r.down(k); err != nil || kinds(r.heard("DEL")) != "later own main" {
		t.Errorf("DEL: %v", err)
	}
}

// The decision alone, over all that files and plugins can say.
func TestChoose(t *testing.T) {
	l := func(file, version string) *list { return &list{file: file, bytes: []byte(file), version: version} }
	bad, half, mute := errors.New("bad"), fmt.Errorf("%w: half", errUnreadable), fmt.Errorf("%w: mute", errUnanswered)
	for name, c := range map[string]struct {
		read  map[string]error
		check map[string]error
		last  *list
		want  string
	}{
		"first":                             {nil, nil, nil, "a"},
		"first is bad":                      {map[string]error{"a": bad}, nil, nil, "b"},
		"first is half":                     {map[string]error{"a": half}, nil, nil, "b"},
		"first is half and was in use":      {map[string]error{"a": half}, nil, l("a", "1"), "a*"},
		"first is bad and was in use":       {map[string]error{"a": bad}, nil, l("a", "1"), "b"},
		"second was in use, first is good":  {nil, nil, l("b", "1"), "a"},
		"second is half, first is bad":      {map[string]error{"a": bad, "b": half}, nil, l("b", "1"), "b*"},
		"first is mute":                     {nil, map[string]error{"a": mute}, nil, "b"},
		"first is mute and was in use":      {nil, map[string]error{"a": mute}, l("a", "1"), "a*"},
		"first is unfit and was in use":     {nil, map[string]error{"a": bad}, l("a", "1"), "b"},
		"first is the same":                 {nil, nil, l("a", "1"), "a*"},
		"first is the same, in new version": {nil, nil, l("a", "0"), "a"},
		"none":                              {map[string]error{"a": bad, "b": bad}, nil, l("b", "1"), ""},
	} {
		got, _ := choose([]string{"a", "b"}, func(f string) (*list, error) { return l(f, ""), c.read[f] },
			func(l *list) (string, error) { return "1", c.check[l.file] }, c.last)
		s := ""
		if got != nil {
			s = got.file
			if got == c.last {
				s += "*"
			}
		}
		if s != c.want {
			t.Errorf("%s: %q; want %q", name, s, c.want)
		}
	}
}

// A plugin that hangs in VERSION does not keep the next configuration out.
func TestAPluginThatHangsInVERSION(t *testing.T) {
	r := newRig(t, false, func(c *Config) { c.VersionTimeout = 20 * time.Millisecond })
	r.install("hung", "main")
	r.acts("hung", map[string]act{"VERSION": {Hang: true}})
	r.write("10.conflist", oneConf("a", "1.0.0", `{"type":"hung"}`))
	r.write("20.conflist", oneConf("b", "1.0.0", `{"type":"main"}`))
	for range 3 {
		wantUse(t, r, "20.conflist 1.0.0")
	}
	if all := r.heard("VERSION"); len(all) != 2 {
		t.Errorf("VERSION of %q; want each plugin asked once", kinds(all))
	}
	if got := r.skipped(); got != "10.conflist" {
		t.Errorf("skipped %q", got)
	}
}

// A directory whose file system does not answer.
func TestALoadThatDoesNotReturn(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	answer := make(chan struct{})
	r.p.dir.versions.ask = func(context.Context, string) ([]string, error) {
		<-answer
		return []string{"1.0.0"}, nil
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := r.p.Plan(ctx, pod("a"))
		wantCode(t, err, network.DeadlineExceeded)
		cancel()
	}
	wantCode(t, r.p.Status(), network.Unavailable, "were not read yet")
	if n := r.p.loads.InFlight(); n != 1 {
		t.Errorf("%d loads hang", n)
	}
	close(answer)
	r.plan(pod("a"))
}

// Errors quote what others wrote, which may be long.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("1", 100_000)
	r := newRig(t, false)
	r.install("main", "lying")
	r.write("00.conflist", `{"name":"net","disableCheck":"`+long+`","plugins":[]}`)
	r.write("01.conflist", `{"name":"`+long+`","plugins":[]}`)
	r.write("02.conflist", oneConf("net", "1.0.0", `{"type":"`+long+`"}`))
	r.write("03.conflist", `{"name":"net","cniVersion":"`+long+`","plugins":[{"type":"main"}]}`)
	r.write("04.conflist", oneConf("net", "1.0.0", `{"type":"lying"}`))
	r.acts("lying", map[string]act{"VERSION": {Stdout: `{"cniVersion":` + long + `}`}})
	wantUse(t, r, "")
	if n := len(r.p.Status().Error()); n > 8<<10 {
		t.Errorf("status has %d bytes", n)
	}
	for _, e := range r.logs.TakeAll() {
		if n := len(fmt.Sprint(e.ContextMap())); n > 4<<10 {
			t.Errorf("%s: %d bytes", e.Message, n)
		}
	}
	r.write("00.conflist", oneConf("net", "1.0.0", `{"type":"main"}`))
	for _, a := range []act{{Stdout: `{"cniVersion":"` + long + `"}`}, {Msg: long, Details: long, Code: 1}, {Stdout: long}, {Stdout: long, Exit: 1}, {Stdout: `{"cniVersion":"1.0.0","ips":[{"address":"` + long + `"}]}`}} {
		r.acts("main", map[string]act{"ADD": a})
		r.inUse()
		_, err := r.up(pod("a"))
		if err == nil || len(err.Error()) > 8<<10 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

// Whoever comes first and goes at once leaves the others what it began.
func TestACallerWithoutTimeSpoilsNothing(t *testing.T) {
	r := newRig(t, false)
	r.install("main")
	r.write("10.conflist", oneConf("net", "1.1.0", `{"type":"main"}`))
	began, slow := make(chan struct{}), make(chan struct{})
	r.p.processes = inMemory{state: r.state, first: func(ctx context.Context, c command) (*output, error) {
		began <- struct{}{}
		select {
		case <-slow:
			return nil, nil
		case <-ctx.Done():
			return nil, errGone
		}
	}}
	for range 2 { // while VERSION runs, and then STATUS
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		_, err := r.p.Plan(ctx, pod("a"))
		wantCode(t, err, network.Canceled)
		slow <- struct{}{}
		for r.p.loads.InFlight()+r.p.asks.InFlight() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	r.plan(pod("a"))
}
