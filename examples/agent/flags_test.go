package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/differences"
)

// invoke runs a command line in this process.
func invoke(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), stdio{in: strings.NewReader(""), out: &out, err: &errs}, args)
	return out.String(), errs.String(), code
}

func discard() stdio { return stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard} }

// parseRunFlags reads the flags of "agent run" and does not run it.
func parseRunFlags(args []string) (f *runFlags, err error) {
	cmd, f := newRun(discard())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetArgs(append([]string{}, args...)) // nil would be those of the test
	cmd.RunE = func(*cobra.Command, []string) error { return f.validate() }
	return f, cmd.Execute()
}

func TestFlagsDefaults(t *testing.T) {
	f, err := parseRunFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	f.all, f.kubelet = nil, nil
	if want := (runFlags{}); !reflect.DeepEqual(*f, want) {
		t.Errorf("without flags: %+v, want %+v", *f, want)
	}
}

func TestFlagsEach(t *testing.T) {
	for _, tc := range []struct {
		args string
		got  func(f *runFlags) any
		want any
	}{
		{"--config /etc/k.yaml", func(f *runFlags) any { return f.kubelet.ConfigFile }, "/etc/k.yaml"},
		{"--config=/etc/k.yaml", func(f *runFlags) any { return f.kubelet.ConfigFile }, "/etc/k.yaml"},
		{"--config a --config b", func(f *runFlags) any { return f.kubelet.ConfigFile }, "b"},
		{"--config-dir /etc/k.d", func(f *runFlags) any { return f.kubelet.ConfigDir }, "/etc/k.d"},
		{"-v=4", func(f *runFlags) any { return f.kubelet.Verbosity }, 4},
		{"--socket /run/a.sock", func(f *runFlags) any { return f.socket }, "/run/a.sock"},
		{"--exec-probes-in-flight 9", func(f *runFlags) any { return f.execProbes }, 9},
		{"--fast-probes", func(f *runFlags) any { return f.fastProbes }, true},
		{"--pull-bandwidth 512Ki", func(f *runFlags) any { n, _ := f.pullBytes(); return n }, int64(512 << 10)},
		{"--pulls-per-registry 3", func(f *runFlags) any { return f.pullsPerRegistry }, 3},
		{"--starts-in-flight 9", func(f *runFlags) any { return f.startsInFlight }, 9},
	} {
		t.Run(tc.args, func(t *testing.T) {
			f, err := parseRunFlags(strings.Fields(tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.got(f); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Every error names the flag, the value and what is allowed.
func TestFlagsWrong(t *testing.T) {
	long := "/" + strings.Repeat("s", 107)
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--secret-key-file", "/s"}, []string{`--secret-key-file="/s"`, "requires --kubeconfig"}},
		{[]string{"--secrets-in-clear"}, []string{"--secrets-in-clear=true", "requires --kubeconfig"}},
		{[]string{"--kubeconfig", "/k", "--secrets-in-clear", "--secret-key-file", "/s"}, []string{`--secret-key-file="/s"`, "want at most one of them"}},
		{[]string{"--socket", long}, []string{`--socket="` + long, "at most 107 bytes"}},
		{[]string{"--exec-probes-in-flight", "-1"}, []string{"--exec-probes-in-flight=-1", "1 or more"}},
		{[]string{"--pulls-per-registry", "-1"}, []string{"--pulls-per-registry=-1", "1 or more"}},
		{[]string{"--pull-bandwidth", "fast"}, []string{`--pull-bandwidth="fast"`, "512Ki"}},
		{[]string{"--pull-bandwidth", "-1"}, []string{`--pull-bandwidth="-1"`, "512Ki"}},
		{[]string{"--starts-in-flight", "-1"}, []string{"--starts-in-flight=-1", "1 or more"}},
		{[]string{"--starts-in-flight", "few"}, []string{`--starts-in-flight="few"`, "want a whole number"}},
		{[]string{"--v", "99999999999999999999"}, []string{`-v="99999999999999999999"`, "want a whole number"}},
		{[]string{"--bundle", "shop:prod"}, []string{`--bundle: reference "shop:prod"`, "REGISTRY/NAME:TAG", "or apply"}},
		{[]string{"--bundle-interval", "1s"}, []string{"--bundle-interval=1s", "5s or more"}},
		{[]string{"--register-node=maybe"}, []string{`--register-node="maybe"`, "want true or false"}},
		{[]string{"--root-dir"}, []string{"--root-dir", "want a value after it"}},
		{[]string{"--no-such"}, []string{"unknown flag --no-such", "--help lists the flags"}},
		{[]string{"web.yaml"}, []string{"run takes no argument", `"web.yaml"`}},
		{[]string{"--", "--v=2"}, []string{"run takes no argument", `"--v=2"`}},
		// All mistakes at once.
		{[]string{"--bootstrap-kubeconfig", "/k", "--node-ip", "x", "--node-labels", "a=%"}, []string{"--bootstrap-kubeconfig", "--node-ip", "--node-labels"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			_, err := parseRunFlags(tc.args)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// Relative paths are those of the working directory, as in the kubelet's flags.
func TestFlagsOfPaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	f, err := parseRunFlags([]string{"--preload-images", "images", "--registry-hosts", "../certs.d", "--devices", "devices.yaml"})
	if err != nil || f.preload != filepath.Join(dir, "images") || f.registryHosts != filepath.Join(filepath.Dir(dir), "certs.d") || f.devices != filepath.Join(dir, "devices.yaml") {
		t.Errorf("%q, %q, %q, %v", f.preload, f.registryHosts, f.devices, err)
	}
}

// The agent does not start with a file of devices that has mistakes.
func TestDevicesFileWithMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "devices.yaml")
	if err := os.WriteFile(file, []byte("devices: [{resource: example.com/serial, paths: [/etc/passwd]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := invoke(t, "run", "--pod-manifest-path", t.TempDir(), "--devices", file)
	if want := "--devices: " + file + `: devices[0].paths[0] is "/etc/passwd"; want a path below /dev`; code == 0 || !strings.Contains(stderr, want) {
		t.Errorf("exit %d, %s; want %q", code, stderr, want)
	}
}

// Flags stand before the command or behind it.
func TestFlagsBeforeTheCommand(t *testing.T) {
	root := serveAgent(t, &fakeAgent{pods: []*v1.Pod{testPod("kube-system", "get")}})
	for _, line := range []string{
		"--root-dir ROOT get pods -o name", "get --root-dir ROOT pods -o name", "-o name get pods --root-dir=ROOT", "-n kube-system -o name get --root-dir=ROOT pods",
		"--root-dir=ROOT get pods get -o name", "get pods -o name --root-dir ROOT -- get",
	} {
		stdout, stderr, code := invoke(t, strings.Fields(strings.ReplaceAll(line, "ROOT", root))...)
		if code != 0 || stderr != "" || stdout != "pod/get\n" {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q", line, code, stdout, stderr)
		}
	}
}

func TestFlagsHelp(t *testing.T) {
	for _, args := range []string{"help", "--help", "-h"} {
		stdout, stderr, code := invoke(t, strings.Fields(args)...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "\n  describe ") || strings.Contains(stdout, "--max-pods") {
			t.Errorf("agent %s: exit %d, stderr %q, stdout\n%s", args, code, stderr, stdout)
		}
	}
	for _, c := range newRoot(discard()).Commands() {
		if !c.Runnable() {
			continue
		}
		for _, args := range [][]string{{c.Name(), "-h"}, {c.Name(), "--help"}, {"help", c.Name()}} {
			stdout, stderr, code := invoke(t, args...)
			if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:\n  agent "+c.Use) || !strings.Contains(stdout, "\n\nExamples:\n  agent ") {
				t.Errorf("agent %v: exit %d, stderr %q, stdout\n%s", args, code, stderr, stdout)
			}
		}
	}
	stdout, _, _ := invoke(t, "run", "-h")
	cmd, _ := newRun(discard())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(stdout, "--"+f.Name) {
			t.Errorf("agent run -h does not list --%s", f.Name)
		}
	})
	for _, want := range []string{"--root-dir directory", `(default "/var/lib/kubelet")`, "\n  -v, --v level ", "\n      --register-node  "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("agent run -h does not contain %q:\n%s", want, stdout)
		}
	}
}

func TestAgentTopic(t *testing.T) {
	for usage, want := range map[string]string{
		"field maxPods of the configuration, a number": fieldFlags,
		"--containerd of the kubelet has no effect":    unused,
		"the directory of pod manifests":               own,
	} {
		if got := agentTopic(&pflag.Flag{Name: "x", Usage: usage}); got != want {
			t.Errorf("%q: topic %q, want %q", usage, got, want)
		}
	}
	for name, want := range map[string]string{"kubeconfig": joined, "bootstrap-kubeconfig": joined, "v": output, "eviction-hard": limits, "network": onNode} {
		if got := agentTopic(&pflag.Flag{Name: name, Usage: "x"}); got != want {
			t.Errorf("%s: topic %q, want %q", name, got, want)
		}
	}
}

func TestFlagsVersion(t *testing.T) {
	stdout, stderr, code := invoke(t, "version")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "agent ") || !strings.Contains(stdout, " linux/") || !strings.HasSuffix(stdout, ", as Kubernetes v1.37.0\n") {
		t.Errorf("agent version: exit %d, stderr %q, stdout %q", code, stderr, stdout)
	}
}

func TestHelpAboutDifferences(t *testing.T) {
	if stdout, stderr, code := invoke(t, "help", "differences"); code != 0 || stderr != "" || strings.TrimSpace(stdout) != strings.TrimSpace(differences.Text) {
		t.Errorf("exit %d, %q, %.200s", code, stderr, stdout)
	}
}

// kubeadm asks a kubelet for its version before it asks for anything else, and takes
// the first release that it finds in the answer.
func TestVersionAsKubeadmReadsIt(t *testing.T) {
	release := regexp.MustCompile(`^Kubernetes (v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*))\n$`)
	for _, args := range []string{"--version", "--version=true", "run --version", "--pod-manifest-path /p --version", "--node-ip x --version"} {
		stdout, stderr, code := invoke(t, strings.Fields(args)...)
		if m := release.FindStringSubmatch(stdout); code != 0 || stderr != "" || m == nil || m[1] != "v1.37.0" {
			t.Errorf("agent %s: exit %d, stderr %q, stdout %q", args, code, stderr, stdout)
		}
	}
	if stdout, _, code := invoke(t, "--version=raw"); code != 0 || !strings.HasPrefix(stdout, `version.Info{Major:"1", Minor:"37", `) || !strings.Contains(stdout, `GitVersion:"v1.37.0"`) {
		t.Errorf("raw: exit %d, %q", code, stdout)
	}
	for _, bad := range []string{"v1.36.0", "1.37.0", "v1.37", "latest"} {
		if _, stderr, code := invoke(t, "--version="+bad); code != 1 || !strings.Contains(stderr, bad) || !strings.Contains(stderr, "want") {
			t.Errorf("--version=%s: exit %d, %q", bad, code, stderr)
		}
	}
	_, f := newRun(discard())
	if err := f.version.Set("v1.37.4+mine"); err != nil || f.version.asked() || f.version.release() != "v1.37.4+mine" {
		t.Errorf("%v, %q", err, f.version)
	}
}

// A mistake ends with code 1 and one line that says what to do.
func TestFlagsExitCode(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"fly", `unknown command "fly"; agent --help lists the commands`},
		{"gett", `unknown command "gett"; did you mean get?; agent --help`},
		{"log web", `unknown command "log"; did you mean logs?`},
		{"image", `unknown command "image"; did you mean images?`},
		{"ps", `unknown command "ps"; did you mean get?`},
		{"status", `unknown command "status"; did you mean why?`},
		{"start", `unknown command "start"; did you mean run?`},
		{"apply", `unknown command "apply"; did you mean fit?`},
		{"version 2", `version takes no argument, got "2"`},
		{"run pods", `run takes no argument, got "pods"`},
		{"--no-such", "unknown flag --no-such; agent run --help lists the flags"},
		{"run --root-dri /d", "unknown flag --root-dri; did you mean --root-dir?; agent run --help lists the flags"},
		{"get pods --no-such", "unknown flag --no-such; agent get --help lists the flags"},
		{"get pods -x", "unknown flag -x; agent get --help lists the flags"},
		{"--max-pods abc", `--max-pods="abc": want a whole number of 32 bits`},
		{"--v x", `-v="x": want a whole number`},
		{"logs web --since 5", `--since="5": want a duration such as 30s, 5m or 1h30m`},
		{"--config /does/not/exist", "open /does/not/exist: no such file or directory"},
		{"--root-dir /does/not/exist", "nothing to run: give --pod-manifest-path, or staticPodPath or staticPodURL in --config, or --kubeconfig"},
	} {
		stdout, stderr, code := invoke(t, strings.Fields(tc.args)...)
		if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "agent: "+tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agent %s: exit %d, stdout %q, stderr %q; want %q", tc.args, code, stdout, stderr, tc.want)
		}
	}
	// Several mistakes are one line each.
	_, stderr, _ := invoke(t, "--secret-key-file", "/k", "--node-ip", "x")
	if lines := strings.Split(strings.TrimSpace(stderr), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "agent: --node-ip") {
		t.Errorf("stderr %q", stderr)
	}
}
