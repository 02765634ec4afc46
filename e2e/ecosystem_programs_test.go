//go:build ecosystem

package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// foreign says where a program of others comes from. One of module, checkout, own and debian is
// set; debian beside module or checkout is what its build or its image needs.
type foreign struct {
	module   string // module and version, of the module proxy
	checkout string // directory below $ECOSYSTEM and tag, of a program that the module proxy has not
	own      string // directory below tools/ecosystem, with a main package around a library of others
	debian   string // packages, separated by blanks
	pkg      string // to build of a module or checkout; "" is its root
	tests    string // the tag of a package of tests, which is built as a program
	cgo      bool   // partly in C; it is linked statically
	cmake    string // options of a checkout of C, separated by blanks, which is built by cmake
}

// foreignPrograms are the programs of others by the names of their files, with their versions.
var foreignPrograms = map[string]foreign{
	"ansible-playbook":          {debian: "ansible python3-kubernetes"},
	"csi-node-driver-registrar": {checkout: "node-driver-registrar@v2.17.0", pkg: "./cmd/csi-node-driver-registrar"},
	"dra-example-kubeletplugin": {checkout: "dra-example-driver@v0.4.0", pkg: "./cmd/dra-example-kubeletplugin"},
	"ecr-credential-provider":   {module: "k8s.io/cloud-provider-aws@v1.37.1", pkg: "./cmd/ecr-credential-provider"},
	"flannel":                   {checkout: "cni-plugin@v1.9.1-flannel1"},
	"flanneld":                  {module: "github.com/flannel-io/flannel@v0.28.0", cgo: true, debian: "gcc libc6-dev"},
	"fluent-bit":                {checkout: "fluent-bit@v5.1.1", debian: "cmake make gcc g++ flex bison pkg-config libssl-dev libyaml-dev libsqlite3-dev", cmake: fluentBitOptions},
	"flux":                      {own: "flux"},
	"generic-device-plugin":     {checkout: "generic-device-plugin@0.1.0"},
	"hostpathplugin":            {checkout: "csi-driver-host-path@v1.18.0", pkg: "./cmd/hostpathplugin"},
	"k9s":                       {module: "github.com/derailed/k9s@v0.50.16"},
	"kompose":                   {checkout: "kompose@v1.38.0"},
	"kube-router":               {checkout: "kube-router@v2.9.0", pkg: "./cmd/kube-router", debian: "iptables ipset iproute2 libc-bin"},
	"kustomize":                 {module: "sigs.k8s.io/kustomize/kustomize/v5@v5.8.2"},
	"metrics-server":            {module: "sigs.k8s.io/metrics-server@v0.9.0", pkg: "./cmd/metrics-server"},
	"node-problem-detector":     {checkout: "node-problem-detector@v1.36.0", pkg: "./cmd/nodeproblemdetector"},
	"node_exporter":             {module: "github.com/prometheus/node_exporter@v1.12.1"},
	"podman":                    {debian: "podman"},
	"rsyslogd":                  {debian: "rsyslog rsyslog-kubernetes"},
	"tmux":                      {debian: "tmux"},
	"virtualkubelet":            {own: "virtualkubelet"},
	"virtualkubelet-e2e":        {module: "github.com/virtual-kubelet/virtual-kubelet@v1.14.1", pkg: "./internal/test/e2e", tests: "e2e"},
}

// fluentBitOptions build the plugins of the test, with Debian's SQLite.
const fluentBitOptions = "-DFLB_MINIMAL=On -DFLB_IN_TAIL=On -DFLB_IN_EMITTER=On -DFLB_FILTER_KUBERNETES=On -DFLB_OUT_FILE=On -DFLB_PREFER_SYSTEM_LIB_SQLITE=On " +
	"-DFLB_WASM=Off -DFLB_KAFKA=Off -DFLB_LUAJIT=Off -DFLB_EXAMPLES=Off -DFLB_SHARED_LIB=Off -DFLB_BACKTRACE=Off -DFLB_CHUNK_TRACE=Off -DFLB_UNICODE_ENCODER=Off"

// ecosystemDir has the programs that were built, and for each one that could not be had a file
// with the reason.
func ecosystemDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "build", "ecosystem"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// obtain builds or installs programs. It needs the module proxy and Debian's mirror, so it runs
// before the test is apart from the machine.
func obtain(t *testing.T, names []string) {
	dir := ecosystemDir(t)
	for _, name := range names {
		reason := filepath.Join(dir, name+".missing")
		_ = os.Remove(reason)
		p, ok := foreignPrograms[name]
		if !ok {
			t.Fatalf("no program %q in foreignPrograms", name)
		}
		err := p.install(t.Context())
		if err == nil {
			err = p.build(t.Context(), filepath.Join(dir, name))
		}
		if err != nil {
			t.Logf("%s: not to be had: %v", name, err)
			if err := os.WriteFile(reason, []byte(err.Error()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (p foreign) build(ctx context.Context, out string) error {
	var dir string
	switch {
	case p.module != "":
		text, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module).Output()
		var module struct{ Dir, Error string }
		if json.Unmarshal(text, &module) != nil || module.Error != "" {
			err = errors.New(module.Error)
		}
		if err != nil {
			return fmt.Errorf("module %s: %w", p.module, err)
		}
		dir = module.Dir
	case p.checkout != "":
		name, version, _ := strings.Cut(p.checkout, "@")
		top := os.Getenv("ECOSYSTEM")
		if top == "" {
			return fmt.Errorf("needs a checkout of %s at %s below ECOSYSTEM=dir", name, version)
		}
		dir = filepath.Join(top, name)
	case p.own != "":
		dir = filepath.Join("..", "tools", "ecosystem", p.own)
	default:
		return nil
	}
	if p.cmake != "" {
		script := `cmake -S "$1" -B "$2.build" $4 && make -C "$2.build" -j "$(nproc)" "$3-bin" && cp "$2.build/bin/$3" "$2"`
		if text, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", dir, out, filepath.Base(out), p.cmake).CombinedOutput(); err != nil {
			return fmt.Errorf("cmake: %w: %s", err, tail(string(text), 5))
		}
		return nil
	}
	// csi-driver-host-path answers no call without a version.
	_, version, _ := strings.Cut(cmp.Or(p.checkout, p.module), "@")
	cgo, static := "CGO_ENABLED=0", ""
	if p.cgo {
		cgo, static = "CGO_ENABLED=1", " -extldflags -static"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w -X main.version="+version+static, "-o", out)
	if p.tests != "" {
		cmd = exec.CommandContext(ctx, "go", "test", "-c", "-tags", p.tests, "-o", out)
	}
	if p.pkg != "" {
		cmd.Args = append(cmd.Args, p.pkg)
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), cgo)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, tail(string(text), 5))
	}
	return nil
}

func (p foreign) install(ctx context.Context) error {
	if p.debian == "" {
		return nil
	}
	text, err := exec.CommandContext(ctx, "sh", "-c", "dpkg -s $0 >/dev/null 2>&1 || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends $0; }", p.debian).CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get install %s: %w: %s", p.debian, err, tail(string(text), 5))
	}
	return nil
}

// have returns the path of a program of others, and skips the test with the reason if there is
// none.
func have(t *testing.T, name string) string {
	t.Helper()
	dir := ecosystemDir(t)
	if reason, err := os.ReadFile(filepath.Join(dir, name+".missing")); err == nil {
		t.Skipf("%s: %s", name, bytes.TrimSpace(reason))
	}
	if p := foreignPrograms[name]; p.debian != "" && p.checkout == "" && p.module == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		return path
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skip(err)
	}
	return path
}

// neededBy are the programs of tests, each once.
func neededBy(tests []ecosystemTest) []string {
	all := map[string]bool{}
	for _, s := range tests {
		for _, name := range s.needs {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
