package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/containerdtest"
	"github.com/nodewright/nodewright/internal/sampleimage"
	"github.com/nodewright/nodewright/internal/testprogram"
	"github.com/nodewright/nodewright/node"
)

// machine is one that has dpkg, and may be spoilt.
type machine struct {
	t       *testing.T
	root    string    // of its files; "" has systemd, too
	program string    // the agent that is packed
	own     *exec.Cmd // the agent that runs, where there is no systemd
}

// path is where a file of the machine is.
func (m *machine) path(name string) string { return filepath.Join("/", m.root, name) }

func (m *machine) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if m.root != "" {
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: m.root}
	}
	return cmd
}

func (m *machine) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	defer cancel()
	var msg bytes.Buffer
	cmd := m.command(ctx, name, args...)
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, out, msg.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.try(name, args...)
	if err != nil {
		m.t.Fatalf("%v\n%s", err, m.log())
	}
	return out
}

// log is the end of what the agent said.
func (m *machine) log() string {
	out, _ := m.try("journalctl", "-n", "60", "--no-pager", "-u", program)
	if m.root != "" {
		out, _ = m.try("tail", "-n", "60", "/tmp/log")
	}
	return out
}

// pack makes a package of the agent's program, as some version, which takes minutes on
// a machine of the emulator.
func (m *machine) pack(version string) (file string) {
	m.t.Helper()
	binary, err := os.ReadFile(m.program)
	m.must(err)
	p := packaging{repository: repository, arch: runtime.GOARCH, binary: binary, build: build{version: version}}
	content, err := p.debian()
	m.must(err)
	file = "/tmp/" + version + ".deb"
	m.must(os.WriteFile(m.path(file), content, 0o600))
	return file
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// install installs a package, and has the agent run.
func (m *machine) install(file string) {
	m.t.Helper()
	m.run("dpkg", "--force-depends", "--force-confold", "--install", file)
	m.stop(unix.SIGTERM)
	m.start()
}

// start starts the agent as the unit says, where there is no systemd that does.
func (m *machine) start() {
	m.t.Helper()
	if m.root == "" {
		return
	}
	unit, err := os.ReadFile(m.path("/usr/lib/systemd/system/" + program + ".service"))
	m.must(err)
	_, line, _ := strings.Cut(string(unit), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(strings.TrimSuffix(line, "$AGENT_FLAGS"))
	log, err := os.Create(m.path("/tmp/log"))
	m.must(err)
	m.own = m.command(context.WithoutCancel(m.t.Context()), words[0], words[1:]...)
	m.own.Stdout, m.own.Stderr = log, log
	m.must(m.own.Start())
	m.must(log.Close())
}

// stop ends the agent, where there is no systemd that does.
func (m *machine) stop(signal syscall.Signal) {
	m.t.Helper()
	if m.own == nil {
		return
	}
	m.must(m.own.Process.Signal(signal))
	_ = m.own.Wait() // a signal may be its end
	m.own = nil
}

// crash kills the agent, which begins anew.
func (m *machine) crash() {
	m.t.Helper()
	if m.root != "" {
		m.stop(unix.SIGKILL)
		m.start()
		return
	}
	was := m.run("systemctl", "show", "-P", "MainPID", program)
	m.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", program)
	for {
		if pid := m.run("systemctl", "show", "-P", "MainPID", program); pid != was && pid != "0" {
			return
		}
		time.Sleep(time.Second)
	}
}

// pod waits until the pod runs.
func (m *machine) pod(name string) v1.ContainerStatus {
	m.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		var list v1.PodList
		out, err := m.try("/usr/bin/"+program, "get", "pods", "-o", "json")
		if err == nil {
			m.must(json.Unmarshal([]byte(out), &list))
		}
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, name) && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil {
				return p.Status.ContainerStatuses[0]
			}
		}
		if time.Now().After(end) {
			m.t.Fatalf("pod %s does not run: %v\n%s", name, err, m.log())
		}
	}
}

// runs reports whether a program runs, by its name in at most 15 bytes.
func (m *machine) runs(name string) bool {
	m.t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	m.must(err)
	return slices.ContainsFunc(stats, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && bytes.Contains(b, []byte("("+name+") ")) && !bytes.Contains(b, []byte(") Z "))
	})
}

// mounted are the mount points below a directory of the machine.
func (m *machine) mounted(dir string) (below []string) {
	m.t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	m.must(err)
	for line := range strings.Lines(string(b)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, m.path(dir)+"/") {
			below = append(below, at)
		}
	}
	return below
}

// manifest is a pod with a mount of its own.
const manifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":true,"terminationGracePeriodSeconds":1,
"securityContext":{"fsGroup":123},"volumes":[{"name":"v","emptyDir":{"medium":"Memory"}}],
"containers":[{"name":"c","image":"` + sampleimage.Pause + `","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`

// root is the root directory of the agent.
const root = "/var/lib/nodewright"

// prepare makes the machine one that a package may be installed on.
func (m *machine) prepare() {
	m.t.Helper()
	m.must(os.MkdirAll(m.path(root), 0o751))
	m.must(unix.Mount("tmpfs", m.path(root), "tmpfs", 0, "mode=751")) // the machine's own root is an overlay
	m.must(os.RemoveAll(m.path("/usr/sbin/policy-rc.d")))             // in a container's image it forbids that packages start services
}

// A crash of the agent, an upgrade and a removal of the package leave the pod running; a
// purge ends it, and leaves nothing mounted nor written.
func (m *machine) lives() {
	t := m.t
	m.prepare()
	runc, err := os.ReadFile(filepath.Join(repository, "build", "bin", "runc"))
	m.must(err)
	m.must(os.WriteFile(m.path("/usr/local/bin/runc"), runc, 0o755))
	pause, err := os.ReadFile(filepath.Join(repository, "build", "images", "pause.tar"))
	m.must(err)
	m.must(os.WriteFile(m.path("/tmp/pause.tar"), pause, 0o600))

	level = gzip.BestSpeed
	older, newer := m.pack("0.1.0"), m.pack("0.2.0")
	m.install(older)
	if _, err := os.Lstat(m.path("/etc/systemd/system/multi-user.target.wants/" + program + ".service")); err != nil {
		t.Errorf("after the installation the unit is not enabled: %v", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		_, err := m.try("/usr/bin/"+program, "images", "load", "/tmp/pause.tar")
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v\n%s", err, m.log())
		}
	}
	m.must(os.WriteFile(m.path("/etc/nodewright/manifests/p.json"), []byte(manifest), 0o600))
	first := m.pod("p")
	same := func(after string) {
		t.Helper()
		if got := m.pod("p"); got.ContainerID != first.ContainerID || got.RestartCount != 0 {
			t.Errorf("after %s the container is %s with %d restarts, want %s and none", after, got.ContainerID, got.RestartCount, first.ContainerID)
		}
	}
	if below := m.mounted(root); len(below) == 0 {
		t.Error("nothing is mounted for the pod")
	}

	m.crash()
	same("a crash")
	const setting = "# what a person has written\n"
	conf, err := os.ReadFile(m.path("/etc/nodewright/agent.yaml"))
	m.must(err)
	m.must(os.WriteFile(m.path("/etc/nodewright/agent.yaml"), append([]byte(setting), conf...), 0o644))
	m.install(newer)
	same("the upgrade")
	if got := m.run("dpkg-query", "--show", "-f", "${Version}", program); got != "0.2.0" {
		t.Errorf("version %s is installed", got)
	}

	m.stop(unix.SIGTERM)
	m.run("dpkg", "--remove", program)
	if m.runs("nodewright-agen") || !m.runs("pause") {
		t.Errorf("after the removal the agent runs: %v, the container: %v; want the container alone", m.runs("nodewright-agen"), m.runs("pause"))
	}
	m.install(newer)
	same("another installation")
	if got, err := os.ReadFile(m.path("/etc/nodewright/agent.yaml")); err != nil || !bytes.HasPrefix(got, []byte(setting)) {
		t.Errorf("the configuration is %s, %v; want what a person has changed", got, err)
	}

	m.stop(unix.SIGTERM)
	if m.root == "" {
		m.run("systemctl", "stop", program)
	}
	lock, err := node.LockRoot(m.path(root))
	m.must(err)
	if out, err := m.try("dpkg", "--purge", program); err == nil || !m.runs("pause") {
		t.Errorf("a purge while somebody has the root directory: %s, %v, the container runs: %v; want an error, and that it does", out, err, m.runs("pause"))
	}
	lock.Release()
	m.run("dpkg", "--purge", program)
	if m.runs("nodewright-agen") || m.runs("pause") {
		t.Errorf("after the purge the agent runs: %v, the container: %v", m.runs("nodewright-agen"), m.runs("pause"))
	}
	if below := m.mounted(root); len(below) > 0 {
		t.Errorf("mounted after the purge: %q", below)
	}
	if left, err := os.ReadDir(m.path(root)); err != nil || len(left) > 0 {
		t.Errorf("left after the purge: %v, %v", left, err)
	}
	for _, gone := range []string{"/etc/nodewright/agent.yaml", "/etc/default/" + program, "/var/lib/nodewright-agent.purge"} {
		if _, err := os.Stat(m.path(gone)); err == nil {
			t.Errorf("%s is there after the purge", gone)
		}
	}
	if _, err := os.Stat(m.path("/etc/nodewright/manifests/p.json")); err != nil {
		t.Errorf("a manifest of a person went with the purge: %v", err)
	}
}

func TestPackageOnSystemd(t *testing.T) {
	onSystemd(t).lives()
}

func onSystemd(t *testing.T) *machine {
	t.Helper()
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Getenv("TESTVM") == "" {
		t.Skip("wants a machine of systemd that may be spoilt: make test-vm SYSTEMD=1 PKG=./internal/cmd/release")
	}
	return &machine{t: t, program: filepath.Join(repository, "build", "bin", "agent")}
}

// An agent that the drop-in confines has a pod run in containerd, and mounts its volume.
func TestHardeningOnSystemd(t *testing.T) {
	m := onSystemd(t)
	m.prepare()
	c := containerdtest.New(t, containerdtest.Options{})
	m.must(c.Import(t.Context(), filepath.Join(repository, "build", "images", "pause.tar")))
	drop, err := os.ReadFile(filepath.Join(repository, "packaging", "hardening.conf"))
	m.must(err)
	m.must(os.MkdirAll("/etc/systemd/system/"+program+".service.d", 0o755))
	m.must(os.WriteFile("/etc/systemd/system/"+program+".service.d/hardening.conf", drop, 0o644))
	m.must(os.WriteFile("/etc/default/"+program, []byte("AGENT_FLAGS=--container-runtime-endpoint=unix://"+c.Socket+"\n"), 0o644))
	m.must(os.MkdirAll("/etc/nodewright/manifests", 0o700))
	m.must(os.WriteFile("/etc/nodewright/manifests/p.json", []byte(manifest), 0o600))
	level = gzip.BestSpeed
	m.install(m.pack("0.1.0"))
	if got := m.run("systemctl", "show", "-P", "NoNewPrivileges", program); got != "yes" {
		t.Errorf("NoNewPrivileges is %s: the drop-in has no effect", got)
	}
	m.pod("p")
	if below := m.mounted(root); len(below) == 0 {
		t.Error("the volume is not mounted for the machine")
	}
	m.must(os.Remove("/etc/nodewright/manifests/p.json"))
	for end := time.Now().Add(3 * time.Minute); len(m.mounted(root)) > 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("still mounted: %q\n%s", m.mounted(root), m.log())
		}
	}
	m.run("dpkg", "--purge", program)
}

// inside names the variable that says that a process has namespaces of its own, with the path
// of the agent.
const inside = "RELEASE_TEST_AGENT"

// The same without systemd, on this machine's files below an overlay: whatever runs there ends
// with the shell, which is process 1 of its namespace.
func TestPackage(t *testing.T) {
	if os.Getenv(inside) == "" {
		if testing.Short() { // also in the emulated machine
			t.Skip("compiles the agent; left out by -short")
		}
		if os.Getuid() != 0 {
			testprogram.Missing(t, "needs root, for mounts")
		}
		if _, err := exec.LookPath("dpkg"); err != nil {
			t.Skip("dpkg is not on this machine")
		}
		if _, err := os.Stat(filepath.Join(repository, "build", "bin", "runc")); err != nil {
			testprogram.Missing(t, "needs build/bin/runc: make tools")
		}
		if _, err := sampleimage.Build(t.Context(), repository, filepath.Join(repository, "build", "images")); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
			"sh", "-c", `"$0" "$@"; exit $?`, self, "-test.run=^TestPackage$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"="+testprogram.Build(t, "./examples/agent"))
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	m := &machine{t: t, root: "/mnt", program: os.Getenv(inside)}
	mount := func(source, target, kind string, flags uintptr, data string) {
		t.Helper()
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			t.Fatalf("mount %s at %s: %v", source, target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	files := t.TempDir()
	mount("tmpfs", files, "tmpfs", 0, "")
	m.must(os.Mkdir(files+"/upper", 0o755))
	m.must(os.Mkdir(files+"/work", 0o755))
	mount("overlay", m.root, "overlay", 0, "lowerdir=/,upperdir="+files+"/upper,workdir="+files+"/work")
	mount("", m.root, "", unix.MS_SHARED, "")
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		mount(dir, m.root+dir, "", unix.MS_BIND|unix.MS_REC, "")
	}
	for _, dir := range []string{"/run", "/tmp"} {
		mount("tmpfs", m.root+dir, "tmpfs", 0, "")
	}
	m.lives()
}
