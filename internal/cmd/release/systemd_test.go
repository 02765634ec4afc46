package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// machine is one that has systemd and dpkg, and may be spoilt.
type machine struct{ t *testing.T }

func (m machine) run(name string, args ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	defer cancel()
	var msg bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		journal, _ := exec.Command("journalctl", "-n", "40", "--no-pager", "-u", program).CombinedOutput()
		m.t.Fatalf("%s %s: %v: %s%s\n%s", name, strings.Join(args, " "), err, out, msg.Bytes(), journal)
	}
	return strings.TrimSpace(string(out))
}

// pack makes a package of the agent's program, as some version, which takes minutes on
// such a machine.
func (m machine) pack(version string) (file string) {
	m.t.Helper()
	binary, err := os.ReadFile(filepath.Join(repository, "build", "bin", "agent"))
	if err != nil {
		m.t.Fatal(err)
	}
	p := packaging{repository: repository, arch: "amd64", binary: binary, build: build{version: version}}
	content, err := p.debian()
	if err != nil {
		m.t.Fatal(err)
	}
	file = filepath.Join(m.t.TempDir(), version+".deb")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

func (m machine) install(file string) {
	m.t.Helper()
	m.run("dpkg", "--force-depends", "--force-confold", "--install", file)
}

// pod waits until the pod runs.
func (m machine) pod(name string) v1.ContainerStatus {
	m.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		var list v1.PodList
		if err := json.Unmarshal([]byte(m.run(program, "get", "pods", "-o", "json", "--root-dir", "/var/lib/nodewright")), &list); err != nil {
			m.t.Fatal(err)
		}
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, name) && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil {
				return p.Status.ContainerStatuses[0]
			}
		}
		if time.Now().After(end) {
			m.t.Fatalf("pod %s does not run:\n%s", name, m.run("journalctl", "-n", "60", "--no-pager", "-u", program))
		}
	}
}

// alive reports whether the agent runs, and whether the container does.
func (m machine) alive() (agent, container bool) {
	agent = exec.CommandContext(m.t.Context(), "systemctl", "is-active", program).Run() == nil
	container = exec.CommandContext(m.t.Context(), "pgrep", "-x", "pause").Run() == nil
	return agent, container
}

// The package on a machine of systemd: installed, upgraded and removed, the pod keeps
// running; removed as asked, the pod ends.
func TestPackageOnSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil || os.Getenv("TESTVM") == "" {
		t.Skip("wants a machine of systemd that may be spoilt: make test-vm SYSTEMD=1 PKG=./internal/cmd/release")
	}
	m := machine{t}
	const root = "/var/lib/nodewright"
	if err := os.MkdirAll(root, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=751"); err != nil { // the machine's own root is an overlay
		t.Fatal(err)
	}
	if err := os.RemoveAll("/usr/sbin/policy-rc.d"); err != nil { // in a container's image it forbids that packages start services
		t.Fatal(err)
	}
	m.run("cp", filepath.Join(repository, "build", "bin", "runc"), "/usr/local/bin/runc")

	older, newer := m.pack("0.1.0"), m.pack("0.2.0")
	m.install(older)
	if got := m.run("systemctl", "is-enabled", program) + " " + m.run("systemctl", "is-active", program); got != "enabled active" {
		t.Fatalf("after the installation the unit is %s", got)
	}
	m.run(program, "images", "load", "--root-dir", root, filepath.Join(repository, "build", "images", "pause.tar"))
	const manifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":true,"terminationGracePeriodSeconds":1,
"containers":[{"name":"c","image":"` + sampleimage.Pause + `"}]}}`
	if err := os.WriteFile("/etc/nodewright/manifests/p.json", []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	first := m.pod("p")
	same := func(after string) {
		t.Helper()
		if got := m.pod("p"); got.ContainerID != first.ContainerID || got.RestartCount != 0 {
			t.Errorf("after %s the container is %s with %d restarts, want %s and none", after, got.ContainerID, got.RestartCount, first.ContainerID)
		}
	}

	pid := m.run("systemctl", "show", "-P", "MainPID", program)
	m.install(newer)
	if got := m.run("systemctl", "show", "-P", "MainPID", program); got == pid || got == "0" {
		t.Errorf("after the upgrade process %s runs, want a new one", got)
	}
	same("the upgrade")

	m.run("dpkg", "--remove", program)
	if agent, container := m.alive(); agent || !container {
		t.Errorf("after the removal the agent runs: %v, the container: %v; want the container alone", agent, container)
	}
	m.install(newer)
	same("another installation")

	m.run("sed", "-i", "s/END_PODS_ON_REMOVE=.*/END_PODS_ON_REMOVE=yes/", "/etc/default/"+program)
	m.run("dpkg", "--purge", program)
	if agent, container := m.alive(); agent || container {
		t.Errorf("after the removal with its pods the agent runs: %v, the container: %v", agent, container)
	}
	if _, err := os.Stat("/etc/nodewright/agent.yaml"); err == nil {
		t.Error("the configuration is there after the purge")
	}
}
