package nodeagent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
)

// rooted are cgroups of pods below one.
type rooted struct {
	agent.Cgroups
	root string
}

func (r rooted) Root() string { return r.root }

// What two nodes of a machine share is the first one's, and the second one hears what to
// set. Without that it runs beside the first.
func TestClaims(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	if err := errors.Join(os.Mkdir(logs, 0o700), os.Symlink(logs, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	type settings struct {
		logs, cgroup, endpoint, images, address string
		port                                    int32
	}
	claim := func(root string, s settings, change func(*Builder)) error {
		c := &kubeletconfig.Config{RootDir: filepath.Join(dir, root)}
		c.PodLogsDir, c.ImageServiceEndpoint = s.logs, s.images
		if err := os.MkdirAll(c.RootDir, 0o700); err != nil {
			t.Fatal(err)
		}
		b := &Builder{Config: c, Settings: Settings{ClaimsDir: filepath.Join(dir, "claims")}, Log: zap.NewNop()}
		if s.cgroup != "" {
			b.cgroups = rooted{root: s.cgroup}
		}
		n := &Node{builder: b}
		if s.endpoint != "" {
			n.client, n.endpoint = &cri.Client{}, s.endpoint
		}
		b.claimPort(s.address, s.port, "port (--port)")
		if change != nil {
			change(b)
		}
		return n.claim(t.Context())
	}
	first := settings{logs, "/kubepods", "unix:///run/c.sock", "/run/i.sock", "0.0.0.0", 10250}
	if err := claim("first", first, nil); err != nil {
		t.Fatal(err)
	}
	own := settings{logs + "-of-second", "/second/kubepods", "unix:///run/d.sock", "", "0.0.0.0", 10251}
	for _, tc := range []struct {
		name   string
		change func(*settings)
		want   string // of the error; "" for none
	}{
		{"settings of its own", func(*settings) {}, ""},
		{"logs", func(s *settings) { s.logs = logs }, `directory of pod logs "` + logs + `" is used by the agent with root directory "` + dir + `/first"`},
		{"logs by a link", func(s *settings) { s.logs = filepath.Join(dir, "link") }, "set podLogsDir to another one"},
		{"logs below its root directory", func(s *settings) { s.logs = filepath.Join(dir, "second", "logs") }, ""},
		{"cgroup", func(s *settings) { s.cgroup = "/kubepods" }, `cgroup "/kubepods" is used by`},
		{"no cgroups", func(s *settings) { s.cgroup = "" }, ""},
		{"runtime", func(s *settings) { s.endpoint = "/run/../run/c.sock" }, `container runtime "/run/c.sock" is used by`},
		{"runtime in the process", func(s *settings) { s.endpoint = "" }, ""},
		{"images", func(s *settings) { s.images = "unix:///run/i.sock" }, "set imageServiceEndpoint (--image-service-endpoint) to another one"},
		{"port", func(s *settings) { s.port = 10250 }, `port "0.0.0.0:10250" is used by`},
		{"port of another address", func(s *settings) { s.address, s.port = "192.0.2.1", 10250 }, ""},
	} {
		s := own
		tc.change(&s)
		err := claim("second", s, nil)
		if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, node.ErrClaimed) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v; want %q", tc.name, err, tc.want)
		}
	}
	for name, change := range map[string]func(*Builder){
		"no claims":          func(b *Builder) { b.Settings.ClaimsDir = NoClaims },
		"described hardware": func(b *Builder) { b.Hardware = &Hardware{} },
		"a directory that cannot be made": func(b *Builder) {
			b.Settings.ClaimsDir = filepath.Join(dir, "missing", "claims")
		},
	} {
		if err := claim("third", first, change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := claim("first", first, nil); err != nil {
		t.Errorf("the first one begins again: %v", err)
	}
}
