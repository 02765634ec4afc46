package nri

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/log"
	"go.uber.org/zap"
)

// seen notes which plugins answered during one request: the adaptation reports it only as metrics.
type seen struct {
	mu     sync.Mutex
	called string   // the last one that answered
	failed string   // the last one that failed
	asked  []string // those that asked for changes
}

// opSynchronize may run beside a request.
const opSynchronize = "Synchronize"

func (s *seen) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called, s.failed, s.asked = "", "", nil
}

// last returns the plugin that answered last.
func (s *seen) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called
}

// culprit returns the plugin that failed. If none did, plugins conflict or a validator rejected what
// others asked for; then the text of the error names them.
func (s *seen) culprit() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == "" {
		return "NRI plugins"
	}
	return "NRI plugin " + s.failed
}

// changed returns the plugins that asked for changes.
func (s *seen) changed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// RecordPluginInvocation implements adaptation.Metrics.
func (s *seen) RecordPluginInvocation(plugin, operation string, err error) {
	if operation == opSynchronize {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.called = plugin
	if err != nil {
		s.failed = plugin
	}
}

// RecordPluginAdjustments implements adaptation.Metrics.
func (s *seen) RecordPluginAdjustments(plugin, operation string, adjust *adaptation.ContainerAdjustment, updates, _ int) {
	if operation == opSynchronize || adjust == nil && updates == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, plugin)
}

// RecordPluginLatency implements adaptation.Metrics.
func (*seen) RecordPluginLatency(string, string, time.Duration) {}

// UpdatePluginCount implements adaptation.Metrics.
func (*seen) UpdatePluginCount(int) {}

// logger is the log of all adaptations of this process: the module has one variable for it.
var logger struct {
	once sync.Once
	mu   sync.RWMutex
	to   *zap.Logger
}

// logTo makes the module log to l, whose messages are texts for people. It returns a function that
// ends that: goroutines of closed connections log after the adaptation has stopped.
func logTo(l *zap.Logger) (end func()) {
	logger.mu.Lock()
	logger.to = l
	logger.mu.Unlock()
	logger.once.Do(func() { log.Set(moduleLog{}) })
	return func() {
		logger.mu.Lock()
		defer logger.mu.Unlock()
		if logger.to == l {
			logger.to = zap.NewNop()
		}
	}
}

type moduleLog struct{}

func (moduleLog) log(write func(*zap.Logger, string, ...zap.Field), format string, args []any) {
	const longest = 1000
	logger.mu.RLock()
	defer logger.mu.RUnlock()
	write(logger.to, "message of NRI", zap.String("text", fmt.Sprintf("%.*s", longest, fmt.Sprintf(format, args...))))
}

func (m moduleLog) Debugf(_ context.Context, format string, args ...any) {
	m.log((*zap.Logger).Debug, format, args)
}

// Infof logs at the level of debugging: the adaptation reports each step of each plugin.
func (m moduleLog) Infof(_ context.Context, format string, args ...any) {
	m.log((*zap.Logger).Debug, format, args)
}

func (m moduleLog) Warnf(_ context.Context, format string, args ...any) {
	m.log((*zap.Logger).Warn, format, args)
}

// Errorf logs an error. At each start, the module reports as an error that a program lacks WebAssembly;
// that is logged at the level of debugging.
func (m moduleLog) Errorf(_ context.Context, format string, args ...any) {
	write := (*zap.Logger).Error
	if slices.ContainsFunc(args, func(a any) bool { return a == any(adaptation.ErrWasmDisabled) }) {
		write = (*zap.Logger).Debug
	}
	m.log(write, format, args)
}
