package nodeagent

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// JSONEncoder returns an encoder of the JSON format of Kubernetes' components: the
// time is in milliseconds since 1970 (ts), and entries that are no errors have
// their verbosity (v).
func JSONEncoder() zapcore.Encoder {
	return jsonLines{zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		MessageKey: "msg", CallerKey: "caller", NameKey: "logger", TimeKey: "ts",
		EncodeTime: func(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
			enc.AppendFloat64(float64(t.UnixNano()) / float64(time.Millisecond))
		},
		EncodeDuration: zapcore.StringDurationEncoder, EncodeCaller: zapcore.ShortCallerEncoder, LineEnding: zapcore.DefaultLineEnding,
	})}
}

type jsonLines struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (j jsonLines) Clone() zapcore.Encoder { return jsonLines{j.Encoder.Clone()} }

// EncodeEntry implements zapcore.Encoder.
func (j jsonLines) EncodeEntry(ent zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	out := make([]zapcore.Field, 0, len(fields)+1)
	if ent.Level < zap.ErrorLevel {
		out = append(out, zap.Int("v", verbosityOf(ent.Level)))
	}
	for _, f := range fields {
		if f.Key == errorKey && f.Type == zapcore.ErrorType {
			if err, ok := f.Interface.(error); ok {
				f = zap.String("err", text1(err))
			}
		}
		out = append(out, f)
	}
	return j.Encoder.EncodeEntry(ent, out)
}

// text1 returns an error's text, even if its method panics.
func text1(err error) (s string) {
	defer func() {
		if v := recover(); v != nil {
			s = "<error whose text panics>"
		}
	}()
	return err.Error()
}

// verbosityOf returns klog's verbosity of a level.
func verbosityOf(l zapcore.Level) int {
	if l < zap.InfoLevel {
		return DebugFrom
	}
	return 0
}
