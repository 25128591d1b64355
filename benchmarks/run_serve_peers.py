"""Times optimem serve beside ONNX Runtime behind FastAPI and uvicorn, TorchServe 0.12 and llama.cpp's server, on a quiet machine.

    python benchmarks/run_serve_peers.py MINILM_FOLDER SMOLLM.gguf [--seconds 10] [--rounds 1] [--only resnet50,minilm] > FILE.jsonl

The Python that runs it has onnx, onnxscript, onnxruntime, tokenizers, torch, torchvision, transformers, fastapi, uvicorn,
torchserve==0.12.0, torch-model-archiver and xllamacpp; TorchServe needs Java 11 or 17 on the path. A contestant that cannot be
had is left out, and said. One server runs at a time; the generator (benchmarks/serve, a closed loop of 1, 8 and 32 clients, and
an open one at half and at nine tenths of what optimem answers) shares its processors. A line of JSON for each measurement goes
to standard output, a table to standard error. Beside times it has the processor seconds that the server's processes took for
an answer, which tell who is ahead on a machine that is not quiet, too.

What has no peer comes last (--only alone): a model that is paged beside 32 clients, whose p99 is to be two passes at most; ten
times the capacity, with requests of 600 kB and of few bytes; and 64 MiB there and back by REST and gRPC, through a model that only compares with zero, beside a server of
the same protocol and a socket that do nothing but copy.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PORT = 18200
URL = f"http://127.0.0.1:{PORT}"
ADMIN = f"http://127.0.0.1:{PORT + 1}"

EXPORT = """
import sys, torch, transformers
from torchvision.models import resnet50
kind, source, out = sys.argv[1:4]
if kind == "resnet50":
    m = resnet50(); m.load_state_dict(torch.load(source, weights_only=True)); m.eval()
    torch.onnx.export(m, (torch.zeros(1, 3, 224, 224),), out, input_names=["x"], dynamo=False, dynamic_axes={"x": {0: "n"}})
elif kind == "relu":
    torch.jit.script(torch.nn.ReLU()).save(out)
else:
    class Read(torch.nn.Module):
        def forward(self, input_ids, attention_mask):
            return self.m(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    m = Read()
    m.m = transformers.AutoModel.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    ids, axes = torch.ones(2, 8, dtype=torch.long), {0: "batch", 1: "length"}
    torch.onnx.export(m, (ids, ids), out, input_names=["input_ids", "attention_mask"], output_names=["states"], dynamo=False,
                      dynamic_axes={"input_ids": axes, "attention_mask": axes, "states": axes})
"""


def say(*words):
    print(*words, file=sys.stderr, flush=True)


@contextlib.contextmanager
def server(command, ready, log, says="", wait=180, **more):
    """Runs a server until the block ends. It is there when ready answers what is to be said."""
    with open(log, "w") as out:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, **more)
    try:
        for _ in range(wait * 5):
            if p.poll() is not None:
                raise RuntimeError(pathlib.Path(log).read_text()[-2000:])
            try:
                with urllib.request.urlopen(ready, timeout=5) as answer:
                    if says in answer.read().decode():
                        break
            except urllib.error.HTTPError as e:
                if e.code in (404, 405) and not says:
                    break
            except OSError:
                pass
            time.sleep(0.2)
        else:
            raise RuntimeError("it is not ready: " + pathlib.Path(log).read_text()[-2000:])
        yield p.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGTERM)
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()


def pinned(processors):
    """What has a process run on these processors, None for all."""
    return (lambda: os.sched_setaffinity(0, processors)) if processors else None


class Bench:
    def __init__(self, a, work):
        self.a, self.work, self.lines = a, work, []
        self.asking = None  # the processors of the generator, where it has its own
        self.program, self.load = work / "optimem", work / "load"
        for target, package in ((self.program, "./cmd/optimem"), (self.load, "./benchmarks/serve")):
            subprocess.run(["go", "build", "-o", target, package], cwd=HERE.parent, check=True)
        self.machine = f"{os.uname().sysname} {os.uname().machine}, {os.cpu_count()} processors"
        self.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip()

    def ask(self, *args, seconds=None):
        command = [self.load, "-url", URL, "-seconds", str(seconds or self.a.seconds), *map(str, args)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=pinned(self.asking)).stdout)

    def tell(self, model, who, what, result):
        line = {"model": model, "server": who, "what": what, **result, "machine": self.machine, "commit": self.commit,
                "load": os.getloadavg()[0]}
        self.lines.append(line)
        print(json.dumps(line), flush=True)
        say(f"{model:9} {who:12} {what:28} {result['answered_per_second']:8.1f}/s  p50 {1e3 * result['p50_seconds']:8.1f} ms  "
            f"p99 {1e3 * result['p99_seconds']:8.1f} ms  {1e3 * result.get('processor_seconds_per_answer', 0):8.2f} ms of processors  "
            f"{result.get('tokens_per_second', 0):6.1f} tokens/s  {result.get('resident_bytes', 0) >> 20} MiB  {result['statuses']}")
        return result

    def optimem(self, folder, *more, processors=None):
        return server([self.program, "serve", folder, "--listen", f"127.0.0.1:{PORT}", "--admin", f"127.0.0.1:{PORT + 1}", *more],
                      URL + "/v2/health/ready", self.work / "optimem.log", preexec_fn=pinned(processors))

    def contest(self, model, who, start, request, rates=None):
        """Measures one server with one model; returns the rates for the others."""
        try:
            with start() as pid:
                ask = lambda *more, **kw: self.ask("-pid", pid, *request, *more, **kw)
                first = self.ask(*request, "-clients", 2, seconds=2)  # which warms up
                if set(first["statuses"]) != {"200"}:
                    raise RuntimeError(f"it answers {first['statuses']}")
                best = 0
                for clients in self.a.clients.split(","):
                    best = max(best, self.tell(model, who, f"{clients} clients", ask("-clients", clients))["answered_per_second"])
                rates = rates or (round(0.5 * best, 2), round(0.9 * best, 2))
                for rate in rates:
                    self.tell(model, who, f"{rate} a second", ask("-rate", rate))
        except (RuntimeError, OSError, subprocess.CalledProcessError) as e:
            say(f"{model}: {who} is left out: {str(e)[:2000]} {str(getattr(e, 'stderr', ''))[-2000:]}")
        return rates

    def torchserve(self, name, source):
        """Packs a model for TorchServe and returns its server."""
        store = self.work / "store"
        store.mkdir(exist_ok=True)
        files = [source] if source.is_file() else [f for f in source.iterdir() if f.is_file()]  # an archive is flat
        bin = pathlib.Path(sys.executable).parent
        subprocess.run([sys.executable, "-m", "model_archiver.model_packaging", "--model-name", name, "--version", "1.0", "--force", "--handler",
                        HERE / "peers" / "serve_torchserve.py", "--export-path", store, "--extra-files", ",".join(map(str, files))],
                       check=True, capture_output=True, text=True)
        config = self.work / "config.properties"
        settings = {"1.0": {"defaultVersion": True, "marName": f"{name}.mar", "minWorkers": 1, "maxWorkers": 1, "batchSize": 32, "maxBatchDelay": 5,
                            "responseTimeout": 120}}
        config.write_text(f"inference_address={URL}\nmanagement_address={ADMIN}\nmetrics_address=http://127.0.0.1:{PORT + 2}\n"
                          f"disable_token_authorization=true\nenable_envvars_config=false\njob_queue_size=1000\n"
                          f'models={json.dumps({name: settings})}\n'.replace("\n\n", "\n"))
        env = os.environ | {"PATH": f"{bin}:{os.environ['PATH']}", "LOG_LOCATION": str(self.work), "METRICS_LOCATION": str(self.work),
                            "TS_DISABLE_TOKEN_AUTHORIZATION": "true"}
        return server([bin / "torchserve", "--start", "--foreground", "--ncs", "--model-store", store, "--models", f"{name}={name}.mar",
                       "--ts-config", config, "--disable-token-auth"], f"{ADMIN}/models/{name}", self.work / "torchserve.log", '"READY"', env=env, cwd=self.work)

    def resnet50(self):
        weights = self.work / "resnet50.pt"
        subprocess.run([self.program, "synth", "resnet50", "-o", weights], check=True, capture_output=True)
        folder = self.work / "resnet"
        folder.mkdir()
        shutil.copy(weights, folder)
        (folder / "resnet50.model.json").write_text('{"arch": "resnet50"}')
        of = ["-input", "x", "-shape", "1,3,224,224"]
        yield "optimem", lambda: self.optimem(folder, "--memory", "2GiB"), [*of, "-model", "resnet50"]
        yield "optimem gRPC", lambda: self.optimem(folder, "--memory", "2GiB"), [*of, "-model", "resnet50", "-grpc"]
        yield "onnxruntime", lambda: self.onnx(), [*of, "-post", "/resnet50"]
        yield "torchserve", lambda: self.torchserve("resnet50", weights), [*of, "-post", "/predictions/resnet50"]

    def onnx(self):
        files = []
        for kind, source in (("resnet50", self.work / "resnet50.pt"), ("minilm", self.a.minilm)):
            files.append(self.work / f"{kind}.onnx")
            if not files[-1].exists():
                subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, kind, source, files[-1]], check=True, capture_output=True, text=True)
        return server([sys.executable, HERE / "peers" / "serve_onnx.py", str(PORT), *files, self.a.minilm / "tokenizer.json"],
                      URL + "/", self.work / "onnx.log")

    def minilm(self):
        folder = self.work / "embed"
        folder.mkdir()
        shutil.copytree(self.a.minilm, folder / "minilm")
        body = self.work / "embed.json"
        body.write_text('{"model": "minilm", "input": "Request {n}: the committee said that the harbour would be deepened next spring, weather permitting."}')
        of = ["-body", body, "-type", "application/json", "-post"]
        yield "optimem", lambda: self.optimem(folder, "--memory", "1GiB"), [*of, "/v1/embeddings"]
        yield "onnxruntime", lambda: self.onnx(), [*of, "/v1/embeddings"]
        yield "torchserve", lambda: self.torchserve("minilm", self.a.minilm), [*of, "/predictions/minilm"]

    def smollm2(self):
        folder = self.work / "write"
        folder.mkdir()
        shutil.copy(self.a.smollm, folder / "smollm2.gguf")
        body = self.work / "chat.json"
        body.write_text('{"model": "smollm2", "messages": [{"role": "user", "content": "Story {n}: tell me of a river and of those who live beside it."}], '
                        '"max_tokens": 48, "temperature": 0}')
        of = ["-body", body, "-type", "application/json", "-post", "/v1/chat/completions"]
        yield "optimem", lambda: self.optimem(folder, "--memory", "2GiB", "--context", "512"), of
        yield "llama.cpp", lambda: server([sys.executable, HERE / "peers" / "serve_llama.py", str(PORT), self.a.smollm, str(os.cpu_count())],
                                          URL + "/health", self.work / "llama.log"), of

    def metric(self, name):
        with urllib.request.urlopen(ADMIN + "/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f'{name}{{model="resnet50"'):
                    return float(line.split()[-1])
        return 0.0

    def infer(self):
        """How many requests there were, and how long the passes took in which they were, each as often as requests shared it."""
        with urllib.request.urlopen(URL + "/v2/models/resnet50/stats") as answer:
            t = json.load(answer)["model_stats"][0]["inference_stats"]["compute_infer"]
        return t["count"], t["ns"]

    def refusals(self):
        """How long the server took to refuse requests, by its own histogram: seconds, and how many took no longer."""
        name, buckets = "optimem_refusal_duration_seconds_bucket", {}
        with urllib.request.urlopen(ADMIN + "/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name) and "+Inf" not in line:
                    buckets[float(line.split('le="')[1].split('"')[0])] = float(line.split()[-1])
        return buckets

    def overload(self, model, pid, of):
        """Ten times the capacity. Times tell on a quiet machine. Processor seconds tell on any: an answer takes as many as without
        overload, before and after, and what is more was taken by refusals. What the generator took, the server could not have."""
        before = self.ask("-pid", pid, *of, "-clients", 32)
        capacity, buckets = before["answered_per_second"], self.refusals()
        r = self.ask("-pid", pid, *of, "-rate", 10 * capacity)
        r["refused_within_seconds"] = {le: n - buckets[le] for le, n in self.refusals().items()}
        after = self.ask("-pid", pid, *of, "-clients", 32)
        answer = (before["processor_seconds_per_answer"] + after["processor_seconds_per_answer"]) / 2
        answered, refused = r["statuses"].get("200", 0), r["statuses"].get("429", 0)
        took = r["processor_seconds_per_answer"] * answered
        r["goodput"] = answered / r["seconds"] / ((capacity + after["answered_per_second"]) / 2)
        r["processor_share_of_answers"] = min(answered * answer / took, 1) if took else 0
        r["processor_seconds_per_refusal"] = max(took - answered * answer, 0) / max(refused, 1)
        r["resident_growth"] = r["resident_bytes"] / max(before["resident_bytes"], 1)
        fast = r["refused_within_seconds"].get(0.008, 0) / max(max(r["refused_within_seconds"].values(), default=0), 1)
        r["generator_processors"] = r["generator_processor_seconds"] / r["seconds"]
        self.tell(model, "optimem", f"10 x {capacity:.1f} a second", r)
        say(f"  goodput {r['goodput']:.3f} by the clock, {r['processor_share_of_answers']:.3f} of the processor seconds (at least 0.9); "
            f"{refused} refusals, {fast:.3f} of them within 8 ms in the server (at least 0.99 within 10), "
            f"{1e3 * r['processor_seconds_per_refusal']:.2f} ms of processors each; memory {r['resident_growth']:.2f} x that before; "
            f"asking took {r['generator_processors']:.2f} processors, {'of its own' if self.asking else 'shared with the server'}")

    def alone(self):
        """What has no peer."""
        folder = self.work / "paged"
        folder.mkdir()
        shutil.copy(self.work / "resnet50.pt", folder)
        (folder / "resnet50.model.json").write_text('{"arch": "resnet50", "mode": "page"}')
        of = ["-model", "resnet50", "-input", "x", "-shape", "1,3,224,224"]
        with self.optimem(folder, "--memory", "640MiB") as pid:
            self.ask(*of, "-clients", 32, seconds=3)
            passes, moved = self.metric("optimem_passes_total"), self.metric("optimem_moved_bytes_total")
            count, nanoseconds = self.infer()
            r = self.ask("-pid", pid, *of, "-clients", 32, seconds=max(self.a.seconds, 20))
            r["moved_bytes_per_pass"] = (self.metric("optimem_moved_bytes_total") - moved) / max(self.metric("optimem_passes_total") - passes, 1)
            after = self.infer()
            r["pass_seconds"] = (after[1] - nanoseconds) / max(after[0] - count, 1) / 1e9
            r["p99_passes"] = r["p99_seconds"] / r["pass_seconds"]
            self.tell("resnet50", "optimem", "paged, 32 clients", r)
            say(f"  p99 is {r['p99_passes']:.2f} passes of {r['pass_seconds']:.3f} s (at most 2)")
        # The server has half of the processors and the generator the other, so that what asking takes is nobody's.
        serving, asking = None, None
        if hasattr(os, "sched_getaffinity") and (every := sorted(os.sched_getaffinity(0)))[1:]:
            serving, asking = set(every[:len(every) // 2]), set(every[len(every) // 2:])
        self.asking = asking
        with self.optimem(self.work / "resnet", "--memory", "2GiB", "--max-queue", "32", processors=serving) as pid:  # which ten times fill at once
            self.overload("resnet50", pid, of)
        # A request of little more than a hundred bytes: what overload costs where asking costs nothing.
        folder = self.work / "read"
        folder.mkdir()
        subprocess.run([self.program, "synth", "bert-base", "-o", folder / "bert.pt"], check=True, capture_output=True)
        (folder / "bert.model.json").write_text('{"arch": "bert-base"}')
        with self.optimem(folder, "--memory", "2GiB", "--max-queue", "32", processors=serving) as pid:
            inputs = json.load(urllib.request.urlopen(URL + "/v2/models/bert"))["inputs"]
            body = self.work / "read.json"
            body.write_text(json.dumps({"inputs": [{"name": x["name"], "shape": [1, 32], "datatype": x["datatype"], "data": [1] * 32} for x in inputs]}))
            self.overload("bert", pid, ["-post", "/v2/models/bert/infer", "-body", body, "-type", "application/json"])
        self.asking = None
        folder = self.work / "same"
        folder.mkdir()
        subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORT, "relu", "-", folder / "same.pt"], check=True, capture_output=True)
        shape = ["-shape", str(16 << 20)]
        echo = {}
        for what, more in (("socket", ["socket"]), ("REST", ["http"]), ("gRPC", ["http", "-grpc"])):
            echo[what] = self.tell("64 MiB", "echo", what, self.ask("-echo", *more, *shape))["p50_seconds"]
        with self.optimem(folder, "--memory", "1GiB", "--max-body", "80MiB") as pid:
            inputs = json.load(urllib.request.urlopen(URL + "/v2/models/same"))["inputs"]
            for what, more in (("REST", []), ("gRPC", ["-grpc"])):
                r = self.ask("-pid", pid, "-model", "same", "-input", inputs[0]["name"], *shape, *more)
                r["ratio"], r["ratio_socket"] = r["p50_seconds"] / echo[what], r["p50_seconds"] / echo["socket"]
                self.tell("64 MiB", "optimem", what, r)
                say(f"  {r['ratio']:.2f} x an echo by the same protocol (at most 1.3), {r['ratio_socket']:.2f} x one by a bare socket")


def table(lines):
    """Medians of what was measured, in Markdown."""
    rows = {}
    for x in lines:
        rows.setdefault((x["model"], x["what"], x["server"]), []).append(x)
    say("\n| model | what | server | answers a second | p50 ms | p99 ms | processor ms an answer |\n|---|---|---|---|---|---|---|")
    for (model, what, who), xs in rows.items():
        median = lambda key: sorted(x.get(key, 0) for x in xs)[len(xs) // 2]
        say(f"| {model} | {what} | {who} | {median('answered_per_second'):.1f} | {1e3 * median('p50_seconds'):.1f} | "
            f"{1e3 * median('p99_seconds'):.1f} | {1e3 * median('processor_seconds_per_answer'):.1f} |")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("minilm", type=pathlib.Path)
    p.add_argument("smollm", type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--clients", default="1,8,32")
    p.add_argument("--only", default="resnet50,minilm,smollm2,alone")
    p.add_argument("--servers", default="", help="only these servers")
    a = p.parse_args()
    only = a.only.split(",")
    with tempfile.TemporaryDirectory() as work:
        b = Bench(a, pathlib.Path(work))
        for model in ("resnet50", "minilm", "smollm2"):
            if model not in only and not (model == "resnet50" and {"minilm", "alone"} & set(only)):
                continue  # files of ResNet-50 are wanted by others
            contestants = list(getattr(b, model)())
            rates = None
            for round in range(a.rounds if model in only else 0):
                for who, start, request in contestants:
                    if not a.servers or who in a.servers.split(","):
                        rates = b.contest(model, who, start, request, rates)
        if "alone" in only:
            b.alone()
        table(b.lines)


main()
