package hostchains

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// Config holds what a Manager needs. The zero value of every field means the default
// named beside it.
type Config struct {
	// Every is the time between two looks; 1m.
	Every time.Duration
	// Find returns the path of a program; exec.LookPath.
	Find func(name string) (path string, err error)
	// Call runs a program until it ends, or until ctx does, and returns its exit code,
	// with the beginning of what it wrote. err is not nil if it could not be run.
	// [Exec].
	Call func(ctx context.Context, path string, args ...string) (code int, output string, err error)

	Log *zap.Logger // silent
}

// Manager keeps the chains. Its methods may be called from any goroutine.
type Manager struct {
	cfg   Config
	calls detached.Group[int]
}

// New checks cfg.
func New(cfg Config) (*Manager, error) {
	if cfg.Every < 0 {
		return nil, fmt.Errorf("hostchains: Config.Every is %v; want a positive duration, or 0 for a minute", cfg.Every)
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Find == nil {
		cfg.Find = exec.LookPath
	}
	if cfg.Call == nil {
		cfg.Call = Exec
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Manager{cfg: cfg}, nil
}

// family is one of the two, with the program that knows it.
type family struct {
	program string
	items   []item
}

// item is a chain, or a rule of one.
type item struct {
	table, chain string
	rule         []string // none: the chain itself
	first        bool     // the rule comes before others
}

const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"
)

// families are both, with what each should have.
func families() []family {
	hint := item{table: "mangle", chain: hintChain}
	return []family{
		{"iptables", []item{
			hint,
			{table: "filter", chain: firewallChain},
			{table: "filter", chain: firewallChain, rule: []string{
				"-m", "comment", "--comment", "block incoming localnet connections",
				"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
				"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
			}},
			{table: "filter", chain: "OUTPUT", rule: []string{"-j", firewallChain}, first: true},
			{table: "filter", chain: "INPUT", rule: []string{"-j", firewallChain}, first: true},
		}},
		{"ip6tables", []item{hint}},
	}
}

// Run keeps the chains until ctx ends. It returns nil, and at once where the machine
// has no program for them.
func (m *Manager) Run(ctx context.Context) error {
	found := map[string]string{}
	for _, f := range families() {
		path, err := m.cfg.Find(f.program)
		if err != nil {
			m.cfg.Log.Info("iptables program not found; its chains are not created", zap.String("program", f.program), zap.Error(err))
			continue
		}
		found[f.program] = path
	}
	if len(found) == 0 {
		return nil
	}
	said := map[string]string{} // the last failure by program
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		for _, f := range families() {
			if path := found[f.program]; path != "" {
				m.tell(ctx, f, path, said)
			}
		}
		look.Reset(m.cfg.Every)
	}
}

// tell looks at one family, and logs what is news.
func (m *Manager) tell(ctx context.Context, f family, path string, said map[string]string) {
	made, err := m.keep(ctx, f, path)
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text != "" && text != said[f.program]:
		m.cfg.Log.Warn("failed to maintain iptables chains", zap.String("program", f.program), zap.Error(err))
	case made > 0:
		m.cfg.Log.Info("created iptables chains and rules", zap.String("program", f.program), zap.Int("count", made))
	}
	said[f.program] = text
}

// Ensure looks at both families once, and returns what could not be made.
func (m *Manager) Ensure(ctx context.Context) error {
	var errs []error
	for _, f := range families() {
		path, err := m.cfg.Find(f.program)
		if err == nil {
			_, err = m.keep(ctx, f, path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.program, err))
		}
	}
	return errors.Join(errs...)
}

// keepTimeout bounds a look at one family, beyond the calls' own time: a program that
// the kernel holds is left behind.
const keepTimeout = 2 * time.Minute

// keep makes what one family lacks, and returns how much that was.
func (m *Manager) keep(ctx context.Context, f family, path string) (made int, err error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return m.calls.Do(ctx, f.program, func() (made int, err error) {
		for _, i := range f.items {
			n, err := m.item(ctx, path, i)
			if made += n; err != nil {
				return made, err // the rest stands on it
			}
		}
		return made, nil
	})
}

// The exit code of iptables for a chain or a rule that is not there, which is that for
// other failures of the kernel's, too.
const absent = 1

// item makes a chain or a rule that is not there.
func (m *Manager) item(ctx context.Context, path string, i item) (made int, err error) {
	look, make := []string{"-S", i.chain}, []string{"-N", i.chain}
	if i.rule != nil {
		look, make = append([]string{"-C", i.chain}, i.rule...), append([]string{"-A", i.chain}, i.rule...)
		if i.first {
			make[0] = "-I"
		}
	}
	code, out, err := m.call(ctx, path, i.table, look)
	if err == nil && code == 0 {
		return 0, nil
	}
	if err != nil || code != absent {
		return 0, fail(i, look[0], code, out, err)
	}
	if code, out, err = m.call(ctx, path, i.table, make); err == nil && code == 0 {
		return 1, nil
	}
	// Somebody else may have made it meanwhile.
	if again, _, err := m.call(ctx, path, i.table, look); err == nil && again == 0 {
		return 0, nil
	}
	return 0, fail(i, make[0], code, out, err)
}

func fail(i item, what string, code int, out string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s in table %s: %w", what, i.chain, i.table, err)
	}
	return fmt.Errorf("%s %s in table %s: exit code %d: %s", what, i.chain, i.table, code, out)
}

// callTimeout is how long one call of a program may take, and lockSeconds how long it
// waits for another that changes the tables.
const (
	callTimeout = 10 * time.Second
	lockSeconds = "5"
)

func (m *Manager) call(ctx context.Context, path, table string, args []string) (code int, output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.cfg.Call(ctx, path, append([]string{"-w", lockSeconds, "-t", table}, args...)...)
}

// maxOutput is how much of what a program writes is kept, in bytes.
const maxOutput = 1024

// outputDelay is how long a program's output is waited for when it has ended.
const outputDelay = time.Second

// Exec is a Config.Call that runs the program. When ctx ends it is killed. It is waited for
// however long the kernel holds it.
func Exec(ctx context.Context, path string, args ...string) (code int, output string, err error) {
	var out head
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, outputDelay
	err = cmd.Run()
	text := strings.TrimSpace(string(out.kept))
	if ctx.Err() != nil {
		return 0, text, ctx.Err()
	}
	var exited *exec.ExitError
	if errors.As(err, &exited) && exited.Exited() {
		return exited.ExitCode(), text, nil
	}
	return 0, text, err
}

// head keeps the beginning of what is written to it.
type head struct{ kept []byte }

// Write implements io.Writer. It takes everything.
func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), maxOutput-len(h.kept))]...)
	return len(b), nil
}
