package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/e2e/controlplane"
	"github.com/nodewright/nodewright/internal/containerdtest"
)

// Paths and ports that the suite expects on a node.
const (
	apiServer   = "https://127.0.0.1:6443"
	kubeletRoot = "/var/lib/kubelet"
	podLogs     = "/var/log/pods"
	logLinks    = "/var/log/containers"
	podCgroup   = "kubepods"

	runtimeCgroup = "/runtime"
	nodeName      = "conformance"
)

// machine is the node under test, with the programs that it needs.
type machine struct {
	o          options
	token      string
	mirror     *mirror
	containerd *containerdtest.Containerd
	programs   []*program // last started last
	begun      bool       // the agent was started once

	// The following fields are only for the storage suites.
	cp         *controlplane.ControlPlane
	kubeconfig string
	service    io.Closer // of the API server, for pods

	front *httptest.Server // before the agent's own API
}

// program is a process that was started. ended is closed when it has ended.
type program struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
}

// free returns an error if the machine is a node already.
func (m *machine) free() error {
	var errs []error
	for _, port := range []string{"6443", "10248", "10250", "10255"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			errs = append(errs, fmt.Errorf("port %s: %w", port, err))
			continue
		}
		_ = l.Close()
	}
	for _, dir := range append(cgroupDirs(podCgroup), kubeletRoot, podLogs, logLinks) {
		if _, err := os.Stat(dir); err == nil {
			errs = append(errs, fmt.Errorf("%s is there: this machine is a node already, or an earlier run was killed", dir))
		}
	}
	return errors.Join(errs...)
}

// startRuntime starts containerd with the images of the tests, and the mirror that serves them.
func (m *machine) startRuntime(ctx context.Context) error {
	archives, err := images(ctx, m.o)
	if err != nil {
		return err
	}
	if m.mirror, err = newMirror(ctx, filepath.Join(m.o.out, "registry"), archives); err != nil {
		return err
	}
	m.containerd, err = containerdtest.Start(ctx, containerdtest.Options{
		BinDir: m.o.bin, Repository: m.o.repository, Archives: archives, Mirrors: map[string]string{upstream: m.mirror.server.URL},
	})
	if err != nil {
		return err
	}
	if isApart() {
		if err := (cgroups.Host{}).Join(ctx, runtimeCgroup, m.containerd.PID()); err != nil {
			return err
		}
	}
	return nil
}

// start starts the suite's API server, containerd and the agent.
func (m *machine) start(ctx context.Context) error {
	switch {
	case m.o.storage:
		return m.startStorage(ctx)
	case m.o.local:
		return m.startLocal(ctx)
	}
	m.token = rand.Text()
	if err := m.run("services", filepath.Join(m.o.bin, "e2e_node.test"), "--run-services-mode", "--bearer-token="+m.token, "--report-dir="+m.o.out); err != nil {
		return err
	}
	if err := m.startRuntime(ctx); err != nil {
		return err
	}
	if err := m.until(ctx, "the API server", apiServer+"/healthz"); err != nil {
		return err
	}
	return m.startAgent(ctx)
}

// agent returns the agent's process. It returns nil if the agent is not running.
func (m *machine) agent() *program {
	for _, p := range m.programs {
		select {
		case <-p.ended:
		default:
			if p.name == agentProgram {
				return p
			}
		}
	}
	return nil
}

// agentProgram is the agent's name among the programs.
const agentProgram = "agent"

// startAgent starts the agent with the suite's configuration. If specs have written another
// configuration, it uses that one. It returns when the agent answers.
func (m *machine) startAgent(ctx context.Context) error {
	m.programs = slices.DeleteFunc(m.programs, func(p *program) bool { return p.name == agentProgram })
	address, err := controlplane.MachineAddress()
	if err != nil {
		return err
	}
	static := filepath.Join(m.o.out, "static-pods")
	if !m.begun {
		if err := errors.Join(os.RemoveAll(static), os.MkdirAll(static, 0o755)); err != nil {
			return err
		}
	}
	more := m.o.more
	if m.o.kubelet != "" {
		more += fmt.Sprintf("\ncontainerRuntimeEndpoint: unix://%s\n", m.containerd.Socket)
	}
	if isApart() && !m.o.storage && !m.o.local {
		more += "\nkubeletCgroups: /kubelet\nsystemCgroups: /system\n"
	}
	config, kubeconfig := filepath.Join(m.o.out, "kubelet-config.yaml"), filepath.Join(m.o.out, "kubeconfig")
	if !m.o.storage && !m.o.local {
		config = filepath.Join(m.o.bin, "kubelet-config") // specs write theirs beside their program
	}
	switch {
	case m.o.local:
	case m.o.storage:
		if kubeconfig, err = m.cp.Kubeconfig(nodeName, "system:node:"+nodeName, "system:nodes"); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, kubeconfigText, m.token, apiServer), 0o600); err != nil {
			return err
		}
	}
	if !m.begun {
		if err := os.WriteFile(config, fmt.Appendf(nil, kubeletConfig, static, more), 0o600); err != nil {
			return err
		}
	}
	args := []string{"--config", config, "--root-dir", kubeletRoot, "--hostname-override", nodeName,
		"--node-ip", address, "--runtime-cgroups", runtimeCgroup, "-v", "4"}
	if m.o.local {
		args = append(args, "--local-api", localAddress)
	} else {
		args = append(args, "--kubeconfig", kubeconfig)
	}
	program := m.o.kubelet
	if program == "" {
		program, args = m.o.agent, append([]string{"run", "--container-runtime-endpoint", "unix://" + m.containerd.Socket}, args...)
	}
	if err := m.run(agentProgram, program, args...); err != nil {
		return err
	}
	m.begun = true
	return m.until(ctx, "the agent", "http://127.0.0.1:10248/healthz")
}

// kubeletConfig is the configuration that the suite gives to a kubelet that it starts itself. Its
// verbs are for the directory of static pods, and for additional lines.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupRoot: /
cgroupDriver: cgroupfs
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
readOnlyPort: 10255
staticPodPath: %s
volumeStatsAggPeriod: 10s
serializeImagePulls: false
fileCheckFrequency: 10s
podCIDR: 10.100.0.0/24
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: "250Mi", nodefs.available: "10%%", nodefs.inodesFree: "5%%"}
evictionMinimumReclaim: {nodefs.available: "5%%", nodefs.inodesFree: "5%%"}
%s
`

// kubeconfigText is a kubeconfig. Its verbs are for the token and the server.
const kubeconfigText = `apiVersion: v1
kind: Config
users: [{name: kubelet, user: {token: %s}}]
clusters: [{name: local, cluster: {server: %q, insecure-skip-tls-verify: true}}]
contexts: [{name: local, context: {cluster: local, user: kubelet}}]
current-context: local
`

// systemSpec requires nothing of the machine. The suite's own specification requires a kernel
// configuration, which not every machine reports.
const systemSpec = `{"os": "Linux", "kernelSpec": {"versions": [".*"]}}`

// suite runs the specs. It returns an error only if the suite could not be run; the results of
// the specs are in the report.
func (m *machine) suite(ctx context.Context) error {
	spec := filepath.Join(m.o.out, "system-spec.json")
	if err := os.WriteFile(spec, []byte(systemSpec), 0o600); err != nil {
		return err
	}
	args := []string{
		"--procs", fmt.Sprint(m.o.procs), "--timeout", m.o.timeout.String(), "--no-color", "--poll-progress-after", "0", "--silence-skips", "--keep-going",
		"--json-report", "report.json", "--output-dir", m.o.out, "--label-filter", m.o.labels,
	}
	if m.o.focus != "" {
		args = append(args, "--focus", m.o.focus)
	}
	if m.o.skip != "" {
		args = append(args, "--skip", m.o.skip)
	}
	suite, flags := filepath.Join(m.o.bin, "e2e_node.test"), []string{"--start-services=false", "--stop-services=false", "--prepull-images=false",
		"--bearer-token=" + m.token, "--system-spec-file=" + spec, "--container-runtime-endpoint=unix://" + m.containerd.Socket, "--node-name=" + nodeName,
		"--report-dir=" + m.o.out, "--container-runtime-pid-file="}
	var err error
	switch {
	case m.o.storage:
		suite, flags, err = m.storageSuite()
	case m.o.local:
		suite, flags, err = m.localSuite()
	}
	if err != nil {
		return err
	}
	args = append(append(args, suite, "--"), flags...)
	log, err := os.Create(filepath.Join(m.o.out, "suite.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	service, err := newUnit(ctx, m)
	if err != nil {
		return err
	}
	defer func() { _ = service.close() }()
	cmd := exec.CommandContext(ctx, filepath.Join(m.o.bin, "ginkgo"), args...)
	cmd.Dir, cmd.Env = m.o.out, service.env()
	cmd.Stdout, cmd.Stderr = log, log
	if m.o.verbose {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // the report is written then
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // those of the suite that ginkgo has left behind
	}
	return err
}

// run starts a program, whose output goes to NAME.log.
func (m *machine) run(name, path string, args ...string) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if !m.begun || name != agentProgram {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(filepath.Join(m.o.out, name+".log"), flags, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Dir = m.o.out
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &program{name: name, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	m.programs = append(m.programs, p)
	return nil
}

// until waits until a URL answers with success. what names it in the error after a timeout.
func (m *machine) until(ctx context.Context, what, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // of the machine itself, with a certificate of the moment
	}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+m.token)
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(res.Status)
		}
		for _, p := range m.programs {
			select {
			case <-p.ended:
				return fmt.Errorf("%s has ended: see %s.log in %s", p.name, p.name, m.o.out)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop ends and removes everything that start has started or created.
func (m *machine) stop() error {
	var errs []error
	if m.service != nil {
		errs = append(errs, m.service.Close())
	}
	if m.front != nil {
		m.front.CloseClientConnections()
		m.front.Close()
	}
	for i := len(m.programs) - 1; i >= 0; i-- {
		p := m.programs[i]
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(20 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if p.name == agentProgram && m.containerd != nil {
			errs = append(errs, m.containerd.Stop())
		}
	}
	if m.containerd != nil {
		errs = append(errs, m.containerd.Stop())
	}
	if m.mirror != nil {
		m.mirror.server.Close()
	}
	if m.cp != nil {
		errs = append(errs, m.cp.Stop())
	}
	for _, dir := range []string{kubeletRoot, podLogs, logLinks} {
		errs = append(errs, containerdtest.UnmountBelow(dir), os.RemoveAll(dir))
	}
	for _, dir := range cgroupDirs(podCgroup) {
		errs = append(errs, removeCgroup(dir))
	}
	return errors.Join(errs...)
}

// cgroupDirs returns the directories of a cgroup on cgroup v1 and v2. Not all of them need exist.
func cgroupDirs(cgroup string) []string {
	dirs := []string{filepath.Join("/sys/fs/cgroup", cgroup)}
	controllers, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, c := range controllers {
		dirs = append(dirs, filepath.Join(filepath.Dir(c), cgroup))
	}
	return dirs
}

// removeCgroup removes a cgroup and those below it, the innermost first.
func removeCgroup(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	errs := []error{err}
	for i := len(all) - 1; i >= 0; i-- {
		errs = append(errs, syscall.Rmdir(all[i]))
	}
	return errors.Join(errs...)
}
