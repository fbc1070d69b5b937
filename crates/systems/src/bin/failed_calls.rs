//! Two hundred services want to be registered while the registry is down.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use systems::failed_calls::{FailedCalls, Policy};
use tickwheel::Timer;

fn main() -> Result<(), Box<dyn Error>> {
    // A port where nobody listens yet.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let (first, longest) = (Duration::from_millis(50), Duration::from_millis(400));
    let policy = Policy { first, factor: 2, longest, jitter: 0.5, retries: 1_000 };
    // Connecting blocks, so it is not for the worker.
    let executor = |task| drop(thread::spawn(task));
    let timer = Timer::builder().max_pending(200).executor(executor).build()?;
    let gives_up = |name: &str, failure| println!("gave up {name}: {failure}");
    let calls = FailedCalls::new(&timer, policy, gives_up);
    let few = FailedCalls::new(&timer, Policy { retries: 5, ..policy }, gives_up);

    let mut handles = Vec::new();
    // None is called before all are registered.
    let none = CALLS.lock().unwrap();
    for number in 0..201 {
        let register = move || {
            *CALLS.lock().unwrap() += 1;
            if number == 17 {
                return Err("it has no address".into());
            }
            let mut stream = TcpStream::connect(address)?;
            Ok(writeln!(stream, "service {number}")?)
        };
        let calls = if number == 17 { &few } else { &calls };
        match calls.register(format!("service {number}"), register) {
            Ok(handle) => handles.push(handle),
            Err(rejected) => println!("service {number}: {rejected}"),
        }
    }
    drop(none);
    thread::sleep(Duration::from_millis(300));
    println!("the registry is down: {} calls failed", CALLS.lock().unwrap());
    println!("service 3 is withdrawn: {}", handles[3].withdraw());

    let (listener, began) = (TcpListener::bind(address)?, Instant::now());
    let mut names: Vec<String> = Vec::new();
    while names.len() < 198 {
        names.extend(BufReader::new(listener.accept()?.0).lines().map_while(Result::ok));
    }
    println!("the registry is up: {} services after {:?}", names.len(), began.elapsed());
    while calls.account().pending + few.account().pending != 0 {
        thread::sleep(Duration::from_millis(1));
    }
    names.sort();
    names.dedup();
    println!("{} calls for {} services", CALLS.lock().unwrap(), names.len());
    println!("  with many retries: {:?}", calls.account());
    println!("  with five: {:?}", few.account());
    Ok(())
}

static CALLS: Mutex<u64> = Mutex::new(0);
