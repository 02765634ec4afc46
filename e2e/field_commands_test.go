package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/rogpeppe/go-internal/testscript"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// A script is one case that runs.
type script struct {
	*testscript.TestScript
	node *fieldNode
	t    *testing.T
	neg  bool
}

// fieldCommands are those of cases, beside testscript's; field/README.md lists them.
func fieldCommands() map[string]func(*testscript.TestScript, bool, []string) {
	out := map[string]func(*testscript.TestScript, bool, []string){}
	for name, do := range map[string]func(script, []string) error{
		"agent": script.agent, "apply": script.apply, "remove": script.remove, "pod": script.pod, "await": script.await, "stays": script.stays, "get": script.get,
		"until": script.until, "inpod": script.external, "kubectl": script.external, "image": script.image, "registry": script.registry, "mounts": script.mounts,
		"terminate": script.terminate,
	} {
		out[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			node, _ := ts.Value(fieldNodeKey{}).(*fieldNode)
			t, _ := ts.Value(fieldTestKey{}).(*testing.T)
			s := script{ts, node, t, neg}
			switch name {
			case "inpod", "kubectl":
				args = append([]string{name}, args...)
			case "agent", "until":
			default:
				if neg {
					ts.Fatalf("%s takes no !", name)
				}
			}
			if err := do(s, args); err != nil {
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	return out
}

// name is a pod's: as given, or with the node's behind it, as static pods have it.
func (s script) find(name string) (*v1.Pod, error) {
	list, err := s.node.api.Pods(context.Background())
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Namespace == s.Getenv("NS") && (p.Name == name || p.Name == name+"-n1") {
			return p, nil
		}
	}
	return nil, nil
}

func (s script) agent(args []string) error {
	if len(args) == 0 {
		return errors.New("want start, stop, kill, or a command of the agent")
	}
	if slices.Contains([]string{"start", "stop", "kill", "root"}, args[0]) && s.node.umaskOrOwn(s) {
		return errors.New("the agent is shared; want \"# agent: own\" in the header")
	}
	switch args[0] {
	case "root": // has the agent's state in another directory
		s.node.use(s.MkAbs(args[1]))
		s.Setenv("ROOT", s.node.root())
		return nil
	case "start":
		config, err := os.ReadFile(s.MkAbs("config.yaml"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		err = s.node.start(args[1:], s.filled(string(config)))
		if s.neg {
			if err == nil {
				return errors.New("it starts")
			}
			fmt.Fprintln(s.Stderr(), err)
			return nil
		}
		return err
	case "stop":
		s.node.end(syscall.SIGTERM)
		return nil
	case "kill":
		s.node.kill()
		return nil
	}
	return s.external(append([]string{"agent"}, args...))
}

// umaskOrOwn reports whether the agent is that of all cases.
func (n *fieldNode) umaskOrOwn(s script) bool { return s.Getenv("NS") != "default" }

// filled replaces ${NAME} by what the environment has.
func (s script) filled(text string) string {
	return regexp.MustCompile(`\$\{[A-Z]+\}`).ReplaceAllStringFunc(text, func(m string) string { return s.Getenv(m[2 : len(m)-1]) })
}

// manifest is where the agent reads a file of the case.
func (s script) manifest(file string) string {
	return filepath.Join(s.node.manifests(), s.Getenv("CASE")+"--"+filepath.Base(file))
}

// put replaces a manifest at once.
func (s script) put(name, text string) error {
	tmp := filepath.Join(s.node.dir, s.Getenv("CASE")+".new")
	if err := os.WriteFile(tmp, []byte(s.filled(text)), 0o644); err != nil { //nolint:gosec // a manifest
		return err
	}
	return os.Rename(tmp, s.manifest(name))
}

func (s script) apply(args []string) error {
	for _, file := range args {
		if err := s.put(file, s.ReadFile(file)); err != nil {
			return err
		}
	}
	return nil
}

func (s script) remove(args []string) error {
	for _, file := range args {
		if !strings.HasSuffix(file, ".yaml") {
			file += ".yaml" // of the command pod
		}
		if err := os.Remove(s.manifest(file)); err != nil {
			return err
		}
	}
	return nil
}

// pod makes a pod with one container that runs a script.
func (s script) pod(args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("want NAME [SCRIPT]")
	}
	command := forever
	if len(args) > 1 {
		command = args[1]
	}
	text := strings.Replace(pod(args[0], command), "metadata: {", "metadata: {namespace: ${NS}, ", 1)
	return s.put(args[0]+".yaml", text)
}

// value is what a JSONPath finds in a pod, "" without one.
func value(p *v1.Pod, path string) (string, error) {
	if p == nil {
		return "", nil
	}
	j := jsonpath.New("").AllowMissingKeys(true)
	if err := j.Parse(path); err != nil {
		return "", giveUp{err}
	}
	var b bytes.Buffer
	err := j.Execute(&b, p)
	return b.String(), err
}

// conditionOf is the JSONPath and the expression of a word.
var conditionOf = map[string][2]string{
	"ready":     {`{.status.conditions[?(@.type=="Ready")].status}`, "True"},
	"unready":   {`{.status.conditions[?(@.type=="Ready")].status}`, "False"},
	"succeeded": {"{.status.phase}", "Succeeded"},
	"failed":    {"{.status.phase}", "Failed"},
	"running":   {"{.status.phase}", "Running"},
	"gone":      {"", ""},
}

// is checks a condition of a pod.
func (s script) is(args []string) error {
	var want [2]string
	switch {
	case len(args) == 3:
		want = [2]string{args[1], args[2]}
	case len(args) == 2 && conditionOf[args[1]] != [2]string{} || len(args) == 2 && args[1] == "gone":
		want = conditionOf[args[1]]
	default:
		return giveUp{errors.New("want POD ready|unready|running|succeeded|failed|gone, or POD JSONPATH REGEXP")}
	}
	p, err := s.find(args[0])
	if err != nil {
		return err
	}
	if want[0] == "" {
		if p != nil {
			return fmt.Errorf("pod %s is there, in phase %s", args[0], p.Status.Phase)
		}
		return nil
	}
	if p == nil {
		return fmt.Errorf("no pod %s", args[0])
	}
	re, err := regexp.Compile("^(?s:" + want[1] + ")$")
	if err != nil {
		return giveUp{err}
	}
	got, err := value(p, want[0])
	if err == nil && !re.MatchString(got) {
		why, _ := s.node.api.Why(context.Background(), p.Namespace, p.Name)
		err = fmt.Errorf("%s of pod %s is %q; want %s (%+v)", want[0], args[0], got, want[1], why)
	}
	return err
}

func (s script) await(args []string) error {
	return within(strings.Join(args, " "), func() error { return s.is(args) })
}

// stays checks that a condition holds for a time.
func (s script) stays(args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := s.is(args[1:]); err != nil {
			return err
		}
	}
	return nil
}

func (s script) get(args []string) error {
	p, err := s.find(args[0])
	if err == nil && p == nil {
		err = fmt.Errorf("no pod %s", args[0])
	}
	if err != nil {
		return err
	}
	got, err := value(p, args[1])
	fmt.Fprintln(s.Stdout(), got)
	return err
}

// command is a program with arguments in the case's directory and environment: inpod, kubectl and agent as cases have them, and any
// other by its name.
func (s script) command(args []string) (*exec.Cmd, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), *fieldTimeout)
	s.Defer(cancel)
	cmd, err := s.program(ctx, args)
	if err == nil {
		cmd.WaitDelay = time.Second
		cmd.Dir, cmd.Env = s.MkAbs("."), append(s.node.environ(), "HOME="+s.Getenv("HOME"), "LOGS="+s.Getenv("LOGS"), "ROOT="+s.Getenv("ROOT"))
	}
	return cmd, err
}

func (s script) program(ctx context.Context, args []string) (*exec.Cmd, error) {
	agent := program(s.t, "agent")
	switch args[0] {
	case "agent":
		more := []string{"--root-dir", s.node.root()}
		if slices.Contains([]string{"describe", "why", "logs", "get"}, args[1]) && !slices.Contains(args, "-n") && !slices.Contains(args, "node") {
			more = append(more, "-n", s.Getenv("NS"))
		}
		return exec.CommandContext(ctx, agent, slices.Concat(args[1:2], more, args[2:])...), nil
	case "inpod":
		p, err := s.find(args[1])
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, fmt.Errorf("no pod %s", args[1])
		}
		more := []string{}
		if len(args) > 3 && args[2] == "-c" {
			more, args = args[2:4], args[2:]
		}
		return exec.CommandContext(ctx, agent, slices.Concat([]string{"exec", "--root-dir", s.node.root(), "-n", s.Getenv("NS"), p.Name}, more, []string{"--"}, args[2:])...), nil
	case "kubectl":
		path, words, err := kubectlProgram()
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, path, slices.Concat(words, []string{"--kubeconfig", s.node.kubeconfig(), "-n", s.Getenv("NS")}, args[1:])...), nil
	}
	return exec.CommandContext(ctx, args[0], args[1:]...), nil
}

// kubectlProgram is the machine's, or the one that make e2e has built.
func kubectlProgram() (path string, words []string, err error) {
	if path, err = exec.LookPath("kubectl"); err == nil {
		return path, nil, nil
	}
	path, _ = filepath.Abs(filepath.Join("..", "build", "bin", "cluster"))
	_, err = os.Stat(path)
	return path, []string{"kubectl"}, err
}

// external runs a program once.
func (s script) external(args []string) error {
	if _, _, err := kubectlProgram(); args[0] == "kubectl" && err != nil {
		s.t.Skip(err)
	}
	cmd, err := s.command(args)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = s.Stdout(), s.Stderr()
	err = cmd.Run()
	if s.neg && err == nil {
		return fmt.Errorf("%s succeeds", strings.Join(args, " "))
	}
	if s.neg {
		return nil
	}
	return err
}

// terminate has a pod's first container end by SIGTERM to its first process. The kill command is itself a process of that PID
// namespace: the kernel ends it as well if it has not exited before.
func (s script) terminate(args []string) error {
	if len(args) != 1 {
		return errors.New("want POD")
	}
	cmd, err := s.command([]string{"inpod", args[0], "kill", "1"})
	if err != nil {
		return err
	}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 128+int(syscall.SIGKILL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: it prints %.2000q", err, out)
	}
	return nil
}

// until runs a program until what it prints matches, or does not match any more.
func (s script) until(args []string) error {
	if len(args) < 2 {
		return errors.New("want REGEXP COMMAND [ARG...]")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	if err != nil {
		return err
	}
	return within(strings.Join(args, " "), func() error {
		cmd, err := s.command(args[1:])
		if err != nil {
			return err
		}
		out, err := cmd.CombinedOutput()
		if re.Match(out) == s.neg {
			return fmt.Errorf("%w: it prints %.2000q", errors.Join(err, errors.New("not yet")), out)
		}
		return nil
	})
}

// mounts prints the mount points below the agent's directories.
func (s script) mounts([]string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	out := s.Stdout() // also if there is nothing to print: what an earlier command printed goes
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], s.node.root()+"/") {
			fmt.Fprintln(out, f[4])
		}
	}
	return err
}

// image makes an image of busybox and gives it to the runtime, or writes it to a file.
func (s script) image(args []string) error {
	if len(args) == 0 {
		return errors.New("want NAME [KEY=VALUE...]")
	}
	img := busyboxImage(s.t)
	img.Name = args[0]
	file := ""
	for _, arg := range args[1:] {
		key, text, _ := strings.Cut(arg, "=")
		switch key {
		case "user":
			img.User = text
		case "env":
			img.Env = append(img.Env, text)
		case "entrypoint":
			img.Entrypoint = strings.Fields(text)
		case "cmd":
			img.Cmd = strings.Fields(text)
		case "workdir":
			img.WorkingDir = text
		case "stop":
			img.StopSignal = text
		case "file": // PATH:TEXT
			path, content, _ := strings.Cut(text, ":")
			img.Files = append(img.Files, sampleimage.File{Path: path, Mode: 0o644, Data: []byte(content + "\n")})
		case "big": // MiB
			size, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			img.Files = append(img.Files, sampleimage.File{Path: "/big-" + filepath.Base(args[0]), Mode: 0o644, Data: bytes.Repeat([]byte(args[0]), size<<20/len(args[0]))})
		case "to":
			file = s.MkAbs(text)
		default:
			return fmt.Errorf("%q; want user, env, entrypoint, cmd, workdir, stop, file, big or to", arg)
		}
	}
	if file == "" {
		return s.node.load(img)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(sampleimage.Write(f, img), f.Close())
}

// registry serves an image as REPOSITORY:TAG at REGISTRY, until the case ends. CA is
// the file of its authority.
func (s script) registry(args []string) error {
	if len(args) < 2 {
		return errors.New("want plain|tls REPOSITORY:TAG [USER:PASSWORD]")
	}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if len(args) > 2 {
		open := h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, _ := r.BasicAuth(); r.Method == http.MethodGet && user+":"+password != args[2] {
				w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			open.ServeHTTP(w, r)
		})
	}
	asked, err := os.Create(s.MkAbs("asked"))
	if err != nil {
		return err
	}
	listed := h
	h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(asked, r.Method, r.Host, r.URL.Path, r.UserAgent())
		listed.ServeHTTP(w, r)
	})
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Defer(func() {
		srv.Close()
		_ = asked.Close()
	})
	transport := http.DefaultTransport
	if args[0] == "tls" {
		srv.StartTLS()
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
		s.Setenv("CA", s.MkAbs("registry-ca.crt"))
		if err := os.WriteFile(s.Getenv("CA"), ca, 0o600); err != nil {
			return err
		}
		transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test's own
	} else {
		srv.Start()
	}
	s.Setenv("REGISTRY", srv.Listener.Addr().String())
	_, port, _ := strings.Cut(s.Getenv("REGISTRY"), ":")
	s.Setenv("PORT", port)
	return s.push(s.Getenv("REGISTRY")+"/"+args[1], slices.Concat(args[2:], []string{":"})[0], transport)
}

// push puts the usual image into a registry.
func (s script) push(as, login string, transport http.RoundTripper) error {
	img := busyboxImage(s.t)
	img.Env = append(img.Env, "REGISTRY="+as) // an image of its own: what was pulled counts by the image and not by its names
	var b bytes.Buffer
	if err := sampleimage.Write(&b, img); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.node.dir, "layout")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tar := exec.Command("tar", "-x", "-C", dir)
	tar.Stdin = &b
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	pushed, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		return err
	}
	ref, err := name.ParseReference(as)
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(login, ":")
	return remote.Write(ref, pushed, remote.WithTransport(transport), remote.WithAuth(&authn.Basic{Username: user, Password: password}))
}
