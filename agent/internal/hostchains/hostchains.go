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

// Config configures a Manager. The zero value of every field means the default named beside it.
type Config struct {
	// Every is the interval of checks. The default is 1 minute.
	Every time.Duration
	// Find returns the path of a program; exec.LookPath.
	Find func(name string) (path string, err error)
	// Call runs a program until it exits or ctx ends. It returns the exit code and the beginning
	// of the output. err is not nil if the program could not be run. The default is [Exec].
	Call func(ctx context.Context, path string, args ...string) (code int, output string, err error)

	Log *zap.Logger // if nil, nothing is logged
}

// Manager maintains the chains. Its methods may be called from any goroutine.
type Manager struct {
	cfg   Config
	calls detached.Group[int]
}

// New checks cfg and returns a Manager, which Run starts.
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

// family is IPv4 or IPv6, with the program for its tables.
type family struct {
	program string
	items   []item
}

// item is a chain, or a rule of a chain.
type item struct {
	table, chain string
	rule         []string // none: the chain itself
	first        bool     // the rule is inserted at the beginning
}

const (
	hintChain     = "KUBE-IPTABLES-HINT"
	firewallChain = "KUBE-FIREWALL"
)

// families returns both families with the chains and rules that each needs.
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

// Run maintains the chains until ctx ends, and returns nil. If neither program exists, it returns
// at once.
func (m *Manager) Run(ctx context.Context) error {
	found := map[string]string{}
	for _, f := range families() {
		path, err := m.cfg.Find(f.program)
		if err != nil {
			m.cfg.Log.Info("found no iptables program; creating no chains", zap.String("program", f.program), zap.Error(err))
			continue
		}
		found[f.program] = path
	}
	if len(found) == 0 {
		return nil
	}
	said := map[string]string{} // the last logged failure by program
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

// tell checks one family, and logs changes and new failures. said has the last logged failure of
// each family.
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

// Ensure checks both families once, and returns errors for missing chains and rules that could not
// be created.
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

// keepTimeout limits a check of one family. It is longer than the timeouts of the calls, so it
// matters only for a program that cannot be killed.
const keepTimeout = 2 * time.Minute

// keep creates the missing chains and rules of one family. It returns the number of created chains
// and rules.
func (m *Manager) keep(ctx context.Context, f family, path string) (made int, err error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return m.calls.Do(ctx, f.program, func() (made int, err error) {
		for _, i := range f.items {
			n, err := m.item(ctx, path, i)
			if made += n; err != nil {
				return made, err // the other rules need this chain
			}
		}
		return made, nil
	})
}

// absent is the exit code of iptables for a missing chain or rule. Some other failures have
// this code too.
const absent = 1

// item creates a chain or a rule if it is missing, and returns how many it created: 0 or 1.
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
	// Another program may have created it meanwhile.
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

// callTimeout limits a call of a program. lockSeconds is how long the program waits for another
// program that changes the tables.
const (
	callTimeout = 10 * time.Second
	lockSeconds = "5"
)

func (m *Manager) call(ctx context.Context, path, table string, args []string) (code int, output string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.cfg.Call(ctx, path, append([]string{"-w", lockSeconds, "-t", table}, args...)...)
}

// maxOutput limits the stored output of a program, in bytes.
const maxOutput = 1024

// outputDelay limits the wait for the output after a program has ended.
const outputDelay = time.Second

// Exec is a Config.Call that runs the program and kills it when ctx ends. It waits for the end of
// the process, even if the kernel delays it.
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

// head stores the beginning of the data that is written to it.
type head struct{ kept []byte }

// Write implements io.Writer. It never fails.
func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), maxOutput-len(h.kept))]...)
	return len(b), nil
}
