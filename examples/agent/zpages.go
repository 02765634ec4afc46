package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

// openLog writes to standard error: as Kubernetes' components do if the
// configuration says which of their formats, options or files it wants, and else in
// columns for people.
func openLog(c *kubeletconfig.Config) (*zap.Logger, *nodeagent.LogLevel, error) {
	l := &c.Logging
	if l.Format != "" || len(l.VModule) > 0 || l.Options.Text.SplitStream {
		return nodeagent.NewLogger(nodeagent.LogConfig(c))
	}
	log, level := newLogger(c.Verbosity())
	return log, level, nil
}

// newLogger writes columns for people to standard error.
func newLogger(v int) (*zap.Logger, *nodeagent.LogLevel) {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	level := nodeagent.NewLogLevel(v)
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), level)), level
}
