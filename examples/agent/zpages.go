package main

import (
	"flag"
	"net/url"
	"os"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/server"
)

// verbosity is how much the log tells, as --v has it; it may be changed while
// the agent runs (/debug/flags/v).
type verbosity struct {
	v     atomic.Int64
	level zap.AtomicLevel
}

// debugFrom is the verbosity from which the log tells what only who looks for a
// mistake wants to know.
const debugFrom = 4

// LogLevel implements server.LogLevel.
func (l *verbosity) LogLevel() int { return int(l.v.Load()) }

// SetLogLevel implements server.LogLevel.
func (l *verbosity) SetLogLevel(v int) error {
	l.v.Store(int64(v))
	level := zap.InfoLevel
	if v >= debugFrom {
		level = zap.DebugLevel
	}
	l.level.SetLevel(level)
	return nil
}

// newLogger writes to standard error.
func newLogger(v int) (*zap.Logger, *verbosity) {
	l := &verbosity{level: zap.NewAtomicLevel()}
	_ = l.SetLogLevel(v) // which takes all
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(os.Stderr), l.level)), l
}

// masked stands for what may be a secret.
const masked = "<masked>"

// configzOf is the configuration for /configz, without what may be credentials:
// headers, and the password of a URL.
func configzOf(c *kubeletconfig.KubeletConfiguration) *kubeletconfig.KubeletConfiguration {
	out := c.DeepCopy()
	out.APIVersion, out.Kind = kubeletconfig.SchemeGroupVersion.String(), "KubeletConfiguration"
	for name := range out.StaticPodURLHeader {
		out.StaticPodURLHeader[name] = []string{masked}
	}
	out.StaticPodURL = redacted(out.StaticPodURL)
	return out
}

// flagsOf are all flags with their values for /flagz, without passwords of URLs.
func flagsOf(fs *flag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { out[f.Name] = redacted(f.Value.String()) })
	return out
}

// redacted is a value without the password, if it is a URL that has one.
func redacted(v string) string {
	if u, err := url.Parse(v); err == nil && u.User != nil {
		return u.Redacted()
	}
	return v
}

// serverGates are the feature gates that the node's API knows.
var serverGates = []string{"ContainerCheckpoint", "ExtendWebSocketsToKubelet", "PodLogsQuerySplitStreams"}

// applyGates turns on and off what gates say; what they do not say is as in the
// kubelet.
func applyGates(cfg *server.Config, gates map[string]bool) {
	on := func(gate string, def bool) bool {
		if v, ok := gates[gate]; ok {
			return v
		}
		return def
	}
	cfg.DisableWebSocketTranslation = !on("ExtendWebSocketsToKubelet", true)
	cfg.SplitLogStreams = on("PodLogsQuerySplitStreams", false)
	if !on("ContainerCheckpoint", true) {
		cfg.Checkpoint = nil
	}
}
