package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// nodeName is the name of the node. The names of its static pods end with it.
const nodeName = "nodewright"

// agentConfig is the configuration of the agent. With it the agent may run beside a
// kubelet: it opens no port, and uses none of the kubelet's cgroups for pods. It also
// runs on machines with cgroup v1. A nearly full disk has no effect on the pods, because
// eviction and image garbage collection are off.
const agentConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: %s
healthzPort: 0
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
evictionHard: {}
imageGCHighThresholdPercent: 100
`

// An agentProcess is the agent that this command started.
type agentProcess struct {
	p    paths
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has exited
	err  error         // of exec.Cmd.Wait; read it only after done is closed
}

func startAgent(p paths, more []string) (*agentProcess, error) {
	if err := os.WriteFile(p.agentConfig, fmt.Appendf(nil, agentConfig, p.podLogs), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(p.agentLog)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	say("starting the agent, log in %s", p.rel(p.agentLog))
	cmd := exec.Command(filepath.Join(p.bin, "agent"), "run", "--leave-host", "--root-dir", p.agentRoot, "--config", p.agentConfig,
		"--pod-manifest-path", p.manifests, "--hostname-override", nodeName)
	cmd.Args = append(cmd.Args, more...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // Ctrl-C reaches only this command, which stops the agent itself
		Pdeathsig: syscall.SIGTERM, // the agent also stops if this command is killed
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a := &agentProcess{p: p, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.err = cmd.Wait()
	}()
	return a, nil
}

func (a *agentProcess) stop() {
	say("stopping the agent")
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
		_ = a.cmd.Process.Kill()
		<-a.done
	}
}

// ended returns the error for an agent that exited on its own, with the last lines of its log.
func (a *agentProcess) ended() error {
	log, err := os.ReadFile(a.p.agentLog)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	return fmt.Errorf("the agent exited (%v); last lines of its log:\n%s", a.err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
}

// ask runs a subcommand of the agent's binary and returns its standard output.
func (a *agentProcess) ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(a.p.bin, "agent"), append([]string{"--root-dir", a.p.agentRoot}, args...)...)
	var msg bytes.Buffer
	cmd.Stderr = &msg
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("agent %s: %s", strings.Join(args, " "), bytes.TrimSpace(msg.Bytes()))
	}
	return string(out), nil
}

// awaitPods waits until every pod is ready or has succeeded. It prints the pods whenever
// their states change. After timeout it prints why pods wait, and returns an error.
func (a *agentProcess) awaitPods(ctx context.Context, timeout time.Duration) error {
	want, err := countPods(a.p.manifests)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("pods are not ready after "+timeout.String()))
	defer cancel()
	shown := ""
	for {
		pods, err := a.pods(ctx)
		if state := summary(pods); err == nil && state != shown {
			shown = state
			if table, err := a.ask(ctx, "get", "pods", "-o", "wide"); err == nil {
				fmt.Println(strings.TrimSpace(table))
			}
		}
		if err == nil && len(pods) >= want && allRun(pods) {
			return nil
		}
		select {
		case <-a.done:
			return a.ended()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			a.explain(pods, err)
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *agentProcess) pods(ctx context.Context) ([]v1.Pod, error) {
	out, err := a.ask(ctx, "get", "pods", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("agent get pods: %w", err)
	}
	return list.Items, nil
}

// explain prints err, and for every pod that is not ready the reason why it waits.
func (a *agentProcess) explain(pods []v1.Pod, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	for i := range pods {
		if !runs(&pods[i]) {
			why, err := a.ask(context.Background(), "why", pods[i].Name)
			if err != nil {
				why = err.Error()
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", pods[i].Name, strings.TrimSpace(why))
		}
	}
}

// summary returns a text that changes with the states of the pods, but not with their ages.
func summary(pods []v1.Pod) string {
	var b strings.Builder
	for i := range pods {
		p := &pods[i]
		fmt.Fprint(&b, p.Name, p.Status.Phase, p.Status.PodIP, runs(p))
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			waits := ""
			if c.State.Waiting != nil {
				waits = c.State.Waiting.Reason
			}
			fmt.Fprint(&b, c.Name, c.Ready, c.RestartCount, waits)
		}
	}
	return b.String()
}

func allRun(pods []v1.Pod) bool {
	for i := range pods {
		if !runs(&pods[i]) {
			return false
		}
	}
	return len(pods) > 0
}

func runs(p *v1.Pod) bool {
	if p.Status.Phase == v1.PodSucceeded {
		return true
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return p.Status.Phase == v1.PodRunning
		}
	}
	return false
}

// countPods returns the number of pods in a directory of manifests.
func countPods(dir string) (int, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, f := range files {
		if f.IsDir() || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return 0, err
		}
		for doc := range strings.SplitSeq("\n"+string(data), "\n---") {
			var kind metav1.TypeMeta
			if yaml.Unmarshal([]byte(doc), &kind) == nil && kind.Kind == "Pod" {
				n++
			}
		}
	}
	return n, nil
}

// printCommands prints commands that show the running pods. endpoint is the runtime's endpoint,
// for crictl, or "" if the runtime has none.
func (a *agentProcess) printCommands(endpoint string) {
	p := a.p
	pods, err := a.pods(context.Background())
	if err != nil || len(pods) == 0 {
		return
	}
	pod := &pods[0]
	for i := range pods { // prefers a pod with a port, for curl
		if port(&pods[i]) != 0 {
			pod = &pods[i]
			break
		}
	}
	agent := p.rel(filepath.Join(p.bin, "agent")) + " --root-dir " + p.rel(p.agentRoot)
	name, container := pod.Name, pod.Spec.Containers[0].Name
	fmt.Println("\nAll pods run. Look around from another terminal:")
	fmt.Printf("  %s get pods -o wide\n", agent)
	fmt.Printf("  %s describe pod %s\n", agent, name)
	fmt.Printf("  %s logs %s %s\n", agent, name, container)
	fmt.Printf("  %s why %s\n", agent, name)
	if strings.HasPrefix(pod.Spec.Containers[0].Image, "localhost/nodewright/web:") {
		fmt.Printf("  %s exec %s -c %s -- /web drain 1s\n", agent, name, container)
	}
	if n := port(pod); n != 0 {
		fmt.Printf("  curl http://%s:%d/\n", pod.Status.PodIP, n)
	}
	if crictl := filepath.Join(p.bin, "crictl"); endpoint != "" && fileExists(crictl) {
		fmt.Printf("  %s --runtime-endpoint %s pods\n", p.rel(crictl), endpoint)
	}
	fmt.Printf("Edit, add or remove manifests in %s to see the agent follow.\n", p.rel(p.manifests))
	fmt.Println("Ctrl-C stops and removes everything.")
}

func port(p *v1.Pod) int32 {
	for _, c := range p.Spec.Containers {
		if len(c.Ports) > 0 {
			return c.Ports[0].ContainerPort
		}
	}
	return 0
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
