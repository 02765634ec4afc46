package main

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	logging "github.com/nodewright/nodewright/nodeagent/logs"
)

// openLog writes to standard error: as Kubernetes' components do if the
// configuration says which of their formats, options or files it wants, and else in
// columns for people.
func openLog(c *kubeletconfig.Config) (*zap.Logger, *logging.Level, error) {
	l := &c.Logging
	if l.Format != "" || len(l.VModule) > 0 || l.Options.Text.SplitStream {
		return logging.New(nodeagent.LogConfig(c))
	}
	log, level := newLogger(c.Verbosity())
	return log, level, nil
}

// newLogger writes columns for people to standard error.
func newLogger(v int) (*zap.Logger, *logging.Level) {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	level := logging.NewLevel(v)
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), level)), level
}
