package nodeagent

import (
	"github.com/nodewright/nodewright/kubeletconfig"
)

// LogConfig returns the log options of a configuration, for [NewLogger]. The
// LogLevel that NewLogger returns can be Options.LogLevel.
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
