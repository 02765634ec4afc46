package nodeagent

import (
	"github.com/nodewright/nodewright/kubeletconfig"
)

// LogConfig is how a configuration wants the log to be written: what nodeagent.NewLogger
// takes. Options.LogLevel may be what that returns beside the Logger.
func LogConfig(c *kubeletconfig.Config) LogOptions {
	l := &c.Logging
	out := LogOptions{Format: l.Format, Verbosity: c.Verbosity(), FlushEvery: l.FlushFrequency.Duration.Duration}
	for _, m := range l.VModule {
		out.Modules = append(out.Modules, LogModule{Pattern: m.FilePattern, Verbosity: int(m.Verbosity)})
	}
	o := l.Options.Text.OutputRoutingOptions
	if l.Format == FormatJSON {
		o = l.Options.JSON.OutputRoutingOptions
	}
	out.Split, out.BufferBytes = o.SplitStream, int(o.InfoBufferSize.Value())
	return out
}
