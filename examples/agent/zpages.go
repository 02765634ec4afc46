package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

// openLog returns a logger and its level. If the configuration sets a format or options of
// Kubernetes logs, the logger writes that format. Otherwise it writes columns for people to
// standard error.
func openLog(c *kubeletconfig.Config) (*zap.Logger, *nodeagent.LogLevel, error) {
	l := &c.Logging
	if l.Format != "" || len(l.VModule) > 0 || l.Options.Text.SplitStream {
		return nodeagent.NewLogger(nodeagent.LogConfig(c))
	}
	log, level := newLogger(c.Verbosity())
	return log, level, nil
}

// newLogger returns a logger that writes columns for people to standard error, with colors only on a
// terminal. v is the verbosity.
func newLogger(v int) (*zap.Logger, *nodeagent.LogLevel) {
	level := nodeagent.NewLogLevel(v)
	enc := nodeagent.TerminalEncoder()
	if !isTerminal(os.Stderr) {
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.ISO8601TimeEncoder
		enc = zapcore.NewConsoleEncoder(cfg)
	}
	return zap.New(zapcore.NewCore(enc, zapcore.Lock(os.Stderr), level)), level
}
