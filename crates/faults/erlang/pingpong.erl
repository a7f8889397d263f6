%% Pairs of processes that play ping-pong, with pauses drawn from an exponential distribution. Every 20 ms a line: the moment,
%% 0, the VM's CPU time in ns, round trips.
-module(pingpong).
-export([start/1]).

start([Pairs, PauseUs]) ->
    Done = counters:new(1, [write_concurrency]),
    Mean = list_to_integer(PauseUs) / 1000,
    [spawn(fun() -> ping(spawn(fun pong/0), Mean, Done) end)
     || _ <- lists:seq(1, list_to_integer(Pairs))],
    tell(Done).

ping(Other, Mean, Done) ->
    timer:sleep(trunc(-Mean * math:log(1.0 - rand:uniform()) + 0.5)),
    Other ! {self(), lists:seq(1, 200)},
    receive
        {Other, _} -> counters:add(Done, 1, 1)
    end,
    ping(Other, Mean, Done).

pong() ->
    receive
        {Other, List} -> Other ! {self(), lists:sum(List)}
    end,
    pong().

tell(Done) ->
    timer:sleep(20),
    {Cpu, _} = statistics(runtime),
    io:format("~b 0 ~b ~b~n", [os:perf_counter(nanosecond), Cpu * 1000000, counters:get(Done, 1)]),
    tell(Done).
