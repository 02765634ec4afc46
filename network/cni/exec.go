package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/network"
)

// Limits of plugins' output.
const (
	maxStdout = 1 << 20
	maxStderr = 4 << 10 // of its end
	maxText   = 2 << 10 // of each part of an error
)

// Retries of a plugin whose executable is still being written.
const (
	busyTries = 5
	busyPause = time.Second
)

// The waits for processes.
const (
	pipeTimeout = time.Second // for processes that keep a plugin's pipes open after its end
	killTimeout = time.Second // for killed processes
)

// Error codes of the CNI specification, section 5, that are converted to a
// network.Code.
const (
	codeVersion   = types.ErrIncompatibleCNIVersion
	codeField     = types.ErrUnsupportedField
	codeContainer = types.ErrUnknownContainer
	codeConfig    = types.ErrInvalidNetworkConfig
	codeLater     = types.ErrTryAgainLater
)

// command is one run of a plugin.
type command struct {
	path  string
	verb  string
	stdin []byte
	env   []string
	guard *os.File // inherited; nil for none
}

// output is the output of a process that ended.
type output struct {
	stdout []byte
	stderr string // the last bytes of standard error
	failed error  // why the process did not exit with 0; nil if it did
}

// Errors of processes that were started.
var (
	errKilled = errors.New("killed at the deadline")
	errFlood  = fmt.Errorf("killed for an output of more than %d bytes", maxStdout)
	errGone   = errors.New("killed: the call was canceled")
	errStuck  = errors.New("the process has not ended")
)

// processes runs plugins. left counts the processes that have not ended, even after run has
// returned. If run returns an error, there is no output: the process could not be started, or was
// killed for one of the reasons in the errors above.
type processes interface {
	run(ctx context.Context, c command, left *sync.WaitGroup) (output, error)
}

// executor runs plugins for libcni, for one call.
type executor struct {
	version.PluginDecoder
	processes processes
	binDirs   []string
	list      *list // nil for VERSION
	guard     *os.File
	left      *sync.WaitGroup
	pause     time.Duration // busyPause
	log       *zap.Logger
}

var _ invoke.Exec = (*executor)(nil)

// FindInPath returns the executable of a plugin in the configured directories. The variable
// CNI_PATH of the plugin has the same directories.
func (x *executor) FindInPath(kind string, _ []string) (string, error) {
	path, _, err := findPlugin(kind, x.binDirs)
	return path, err
}

func findPlugin(kind string, dirs []string) (string, os.FileInfo, error) {
	if err := checkKind(kind); err != nil {
		return "", nil, network.Errorf(network.FailedPrecondition, "%w", err)
	}
	var errs []string
	for _, dir := range dirs {
		path := filepath.Join(dir, kind)
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		case err != nil:
			errs = append(errs, err.Error())
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			errs = append(errs, fmt.Sprintf("%s is of mode %v; want an executable file", path, info.Mode()))
		default:
			return path, info, nil
		}
	}
	err := &missingError{kind: kind, dirs: dirs, why: errs}
	return "", nil, &network.Error{Code: network.FailedPrecondition, Err: err}
}

// missingError is the error for a plugin without an executable.
type missingError struct {
	kind string
	dirs []string
	why  []string
}

func (e *missingError) Error() string {
	s := fmt.Sprintf("plugin %s is not in %s", clip(e.kind, 255), strings.Join(e.dirs, ", "))
	if len(e.why) > 0 {
		s += ": " + strings.Join(e.why, "; ")
	}
	return s
}

// ExecPlugin runs a plugin. PATH is the only variable of the agent's environment that the plugin
// gets.
func (x *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	c := command{path: path, stdin: stdin, guard: x.guard}
	c.env, c.verb = environment(environ)
	if x.list != nil {
		var err error
		if c.stdin, err = x.list.request(stdin); err != nil {
			return nil, err
		}
	}
	kind := filepath.Base(path)
	out, err := x.run(ctx, c)
	if err != nil {
		return nil, x.notRun(kind, c.verb, out, err)
	}
	if out.failed != nil {
		return x.said(kind, c.verb, out)
	}
	if out.stderr != "" {
		x.log.Debug("CNI plugin wrote to stderr", zap.String("plugin", kind), zap.String("verb", c.verb), zap.String("stderr", out.stderr))
	}
	if c.verb == "ADD" {
		if err := holesIn(out.stdout); err != nil {
			return nil, network.Errorf(network.Unknown, "plugin %s: ADD: %w", kind, err)
		}
	}
	return out.stdout, nil
}

// run runs a command, and tries again while the executable is being written.
func (x *executor) run(ctx context.Context, c command) (output, error) {
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return output{}, context.Cause(ctx)
		}
		out, err := x.processes.run(ctx, c, x.left)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return out, err
		}
		t := time.NewTimer(x.pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// notRun returns the error for a plugin that did not answer.
func (x *executor) notRun(kind, verb string, out output, err error) error {
	killed := errors.Is(err, errKilled) || errors.Is(err, errFlood) || errors.Is(err, errGone)
	if killed {
		x.log.Warn("killed CNI plugin", zap.String("plugin", kind), zap.String("verb", verb), zap.Error(err), zap.String("stderr", out.stderr))
	}
	code := network.Unknown
	switch {
	case errors.Is(err, errFlood):
	case errors.Is(err, errKilled) || errors.Is(err, context.DeadlineExceeded):
		code = network.DeadlineExceeded
	case errors.Is(err, errGone) || errors.Is(err, context.Canceled):
		code = network.Canceled
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.ENOEXEC):
		code = network.FailedPrecondition
	}
	return network.Errorf(code, "plugin %s: %s: %w%s", kind, verb, err, quoted(out.stderr))
}

func quoted(stderr string) string {
	if stderr == "" {
		return ""
	}
	return fmt.Sprintf(" (stderr: %q)", clip(stderr, maxStderr))
}

// pluginError is the error in a plugin's answer.
type pluginError struct {
	kind, verb string
	code       uint
	text       string
}

func (e *pluginError) Error() string {
	return fmt.Sprintf("plugin %s: %s: %s (code %d)", e.kind, e.verb, e.text, e.code)
}

// said returns the result of a plugin that has answered: its error, or the output that libcni
// expects.
func (x *executor) said(kind, verb string, out output) ([]byte, error) {
	var said types.Error
	e := &pluginError{kind: kind, verb: verb}
	switch err := json.Unmarshal(out.stdout, &said); {
	case err == nil && (said.Msg != "" || said.Code != 0):
		e.code, e.text = said.Code, clip(said.Msg, maxText)
		if said.Details != "" {
			e.text += "; " + clip(said.Details, maxText)
		}
		if out.stderr != "" {
			x.log.Debug("CNI plugin wrote to stderr", zap.String("plugin", kind), zap.String("verb", verb), zap.String("stderr", out.stderr))
		}
	case len(out.stdout) > 0:
		e.text = fmt.Sprintf("%v, and no error can be read of %q%s", out.failed, clip(string(out.stdout), 256), quoted(out.stderr))
	default:
		e.text = fmt.Sprintf("%v%s", out.failed, quoted(out.stderr))
	}
	code := network.Unknown
	switch e.code {
	case codeContainer:
		if verb == "DEL" {
			return nil, nil // the attachment is gone; the other plugins of the list still run
		}
	case codeLater:
		code = network.Unavailable
	case codeConfig, codeField, codeVersion:
		code = network.FailedPrecondition
	}
	return nil, &network.Error{Code: code, Err: e}
}

// variables lists the variables of the CNI protocol.
var variables = []string{"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH"}

// usualPath is the PATH for plugins if the agent has none: plugins run ip, iptables and other
// programs.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the variables for the plugin from libcni's environment, which includes the
// agent's.
func environment(all []string) (env []string, verb string) {
	path := usualPath
	for _, kv := range all {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH" && value != "":
			path = value
		case slices.Contains(variables, name):
			env = append(env, kv)
			if name == "CNI_COMMAND" {
				verb = value
			}
		}
	}
	slices.Sort(env)
	return append(env, "PATH="+path), verb
}
